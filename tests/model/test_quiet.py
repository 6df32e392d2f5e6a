"""Gathering what an event loop asks for at once."""

import asyncio
from collections.abc import Sequence

from agentloop.model.quiet import QuietLoop, about_to_ask


def test_what_is_added_within_ticks_of_each_other_is_handed_over_together() -> None:
    """A lone item waits for one quiet tick; a pause makes another batch."""
    batches: list[list[int]] = []

    def take(items: Sequence[int]) -> None:
        batches.append(list(items))

    async def main() -> None:
        quiet = QuietLoop[int](take)
        quiet.add(1)
        await asyncio.sleep(0)
        quiet.add(2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert batches == [[1, 2]]
        quiet.add(3)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert batches == [[1, 2], [3]]


def test_the_loop_is_not_quiet_while_somebody_is_about_to_ask() -> None:
    """Whatever they wait for; when the last one is through, all that was asked goes together."""
    batches: list[list[int]] = []

    def take(items: Sequence[int]) -> None:
        batches.append(list(items))

    async def main() -> None:
        quiet = QuietLoop[int](take)
        gates = [asyncio.Event() for _ in range(3)]

        async def opens(number: int) -> None:
            with about_to_ask():
                await gates[number].wait()
            quiet.add(number)

        tasks = [asyncio.create_task(opens(number)) for number in range(3)]
        await asyncio.sleep(0)
        quiet.add(9)
        for gate in gates:
            for _ in range(10):
                await asyncio.sleep(0)
            assert batches == []
            gate.set()
        await asyncio.gather(*tasks)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [sorted(batch) for batch in batches] == [[0, 1, 2, 9]]


def test_somebody_who_fails_before_asking_keeps_nobody_waiting() -> None:
    """The block ends with the error, and the others' items are handed over."""
    batches: list[list[int]] = []

    def take(items: Sequence[int]) -> None:
        batches.append(list(items))

    async def main() -> None:
        quiet = QuietLoop[int](take)

        async def fails() -> None:
            with about_to_ask():
                await asyncio.sleep(0)
                raise ValueError("no")

        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        quiet.add(1)
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert batches == [[1]]
