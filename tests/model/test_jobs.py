"""The queue of calls: its order, its bound, and what leaves it."""

from concurrent.futures import Future

import pytest

from agentloop.errors import DeadlineError, QueueFullError
from agentloop.model.constraint import Choice
from agentloop.model.jobs import AGE_S, Job, JobQueue
from agentloop.model.sampler import CanvasRow, SamplerOptions
from tests.model.tiny import tiny_lm

COMPILED = tiny_lm().compile(Choice(["a", "b"]))


def job(priority: int = 0, waited_s: float = 0.0, deadline_s: float | None = None) -> Job:
    row = CanvasRow(COMPILED, SamplerOptions(), 4, seed=0)
    made = Job([1], lambda _: None, row, Future(), priority=priority, deadline_s=deadline_s)
    made.began -= waited_s
    return made


def test_calls_go_in_the_order_they_came() -> None:
    """Of one priority, the call that was made first goes first."""
    queue, jobs = JobQueue(), [job(waited_s=9 - i) for i in range(9)]
    queue.add(jobs[4:])
    queue.add(jobs[:4])
    assert [queue.take() for _ in range(9)] == jobs
    assert queue.take() is None


def test_priority_goes_first_but_keeps_nobody_waiting_for_ever() -> None:
    """A level of priority is worth AGE_S of waiting, and no more."""
    queue = JobQueue()
    fresh, urgent = job(), job(priority=1)
    patient = job(waited_s=1.01 * AGE_S)
    queue.add([fresh, urgent, patient])
    assert [queue.take() for _ in range(3)] == [patient, urgent, fresh]


def test_a_full_queue_takes_all_or_nothing() -> None:
    """Calls beyond the bound are refused together, with the numbers; cancelled ones make room."""
    queue, first = JobQueue(limit=3), [job(), job()]
    queue.add(first)
    with pytest.raises(QueueFullError, match=r"2 calls wait for the model and 2 more .* 3 at most"):
        queue.add([job(), job()])
    assert len(queue) == 2
    first[0].future.cancel()
    queue.add([job(), job()])
    assert len(queue) == 3


def test_cancelled_and_late_calls_are_not_taken() -> None:
    """A call whose deadline passed fails and says how long it waited; a cancelled one is silent."""
    queue, cancelled, late, good = JobQueue(), job(), job(waited_s=2, deadline_s=1.5), job()
    queue.add([cancelled, late, good])
    cancelled.future.cancel()
    assert queue.take() is good
    with pytest.raises(DeadlineError, match=r"given up while it waited, 2\.\d+ s after") as error:
        late.future.result(0)
    assert error.value.num_steps == 0
    assert queue.take() is None
