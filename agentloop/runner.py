"""What all branches of one run share: its nodes are called here, its calls are made here.

Every node patch passes through `Run.commit` and every call inside a node through `Run.call`: the
journal has nowhere else to look. Which node comes next is the business of `agentloop.walk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter, time
from typing import Any, NoReturn, TypeVar, cast

from pydantic import ValidationError

from agentloop.context import RETRY, Call, Here, here, key
from agentloop.drafts import close_draft, shorten
from agentloop.errors import GraphError, JournalError, LimitError
from agentloop.events import Event, RunEvents
from agentloop.flow import Leaf
from agentloop.journal import Journal
from agentloop.leaf_calls import call_leaf, check_choice
from agentloop.spending import Limits, Spending, spent_on
from agentloop.state import StateSpec

T = TypeVar("T")
Patch = dict[str, Any]


class Suspended(BaseException):
    """A node waits for an answer: it ends without a patch, and the run goes on without it.

    Not an `Exception`, so that a node that handles its errors does not handle this.
    """


class Run:
    """What all branches of one run share.

    Attributes:
        name: The run's name.
        log: Its events.
        model: The model that `llm` calls, if one was given.
        journal: Where the run is recorded, if it is.
        answers: Answers that no question has taken yet, by path.
        waiting: Questions without an answer, by path.
        timings: Per node name, how often it ran and the seconds it took in all.
        num_steps: Nodes started so far.
        spending: What its calls took so far.
        is_stopped: Whether the record says that a limit ended the main line: what is recorded is
            taken, nothing else runs.
        wants_drafts: Whether models are to tell the drafts of their answers.
    """

    __slots__ = (
        "_began_s",
        "_gate",
        "_max_steps",
        "_started",
        "answers",
        "is_over",
        "is_stopped",
        "journal",
        "log",
        "model",
        "name",
        "num_steps",
        "spending",
        "timings",
        "waiting",
        "wants_drafts",
    )

    def __init__(
        self,
        name: str,
        log: RunEvents,
        model: Any = None,
        max_steps: int | None = None,
        limits: Limits = Limits(),  # noqa: B008 - a value, never changed
        concurrency: int | None = None,
        journal: Journal | None = None,
        answers: Mapping[str, Any] | None = None,
        wants_drafts: bool = False,
    ) -> None:
        self.name = name
        self.journal = journal
        self.answers = dict(answers or {})
        self.waiting: dict[str, Any] = {}
        self.log = log
        self.model = model
        self.timings: dict[str, list[float]] = {}
        self.num_steps = 0
        self.spending = Spending(limits, journal.spent() if journal is not None else ())
        self._max_steps = max_steps
        self.wants_drafts = wants_drafts
        self.is_over = False  # at a limit of the whole run, which nothing may pass over
        self.is_stopped = journal is not None and journal.reached_limit is not None
        self._gate = asyncio.Semaphore(concurrency) if concurrency is not None else None
        self._started = perf_counter()
        self._began_s = time()

    def emit(self, path: str, kind: str, data: object) -> None:
        """Add an event."""
        self.log.append(Event(self.name, path, kind, data, perf_counter() - self._started))

    def commit(self, path: str, patch: Patch, choice: object, started: float, leaf: Leaf) -> None:
        """Take the patch of a node that is through. The one place where patches pass."""
        now = perf_counter()
        timing = self.timings.get(leaf.name)
        if timing is None:
            timing = self.timings[leaf.name] = [0, 0.0]
        timing[0] += 1
        timing[1] += now - started
        if self.journal is not None:
            self.journal.record_patch(path, patch, choice, self._when(started, now))
        self.log.append(Event(self.name, path, "node.end", patch, now - self._started))

    def _when(self, started: float, now: float) -> tuple[float, float]:
        """When something began, in seconds since 1970, and how many seconds it took."""
        return round(self._began_s + started - self._started, 4), round(now - started, 6)

    async def call(self, place: Here, path: str, call: Call[T]) -> T:
        """Make a call inside a node, or give what it gave. The one place where calls pass."""
        journal = self.journal
        if journal is not None:
            recorded = journal.result(path, call)
            if recorded is not None:
                self.emit(path, "call.replay", recorded[0])
                return cast(T, recorded[0])
            if call.effect != "none":
                self._admit_call(path, call)
                if call.effect == "once" and journal.has_intent(path):
                    answer = await self._interrupted(place, path, call)
                    if answer is not None:
                        return cast(T, answer[0])
                await journal.record_intent(path)
        started = perf_counter()
        result = await self._make(path, call)
        if journal is not None:
            journal.record_result(path, call, result, self._when(started, perf_counter()))
            if call.effect != "none":
                await journal.flush()
        return result

    async def _make(self, path: str, call: Call[T]) -> T:
        self._admit_call(path, call)
        self.spending.begin(call)
        asked = {"kind": call.kind, "name": call.name, "request": call.request}
        self.emit(path, "call.start", asked)
        outer = key.set(f"{self.name}/{path}")
        try:
            result = await call.make()
        except BaseException as error:
            self.emit(path, "call.error", error)
            raise
        finally:
            key.reset(outer)
        self.spending.add(spent_on(call, result))
        self.emit(path, "call.end", result)
        return result

    def _admit_call(self, path: str, call: Call[Any]) -> None:
        try:
            self.spending.admit(self.name, path, call)
        except LimitError:
            self.is_over = True
            raise

    async def ask(self, place: Here, path: str, call: Call[T]) -> T:
        """The answer to a question, or the end of the node until there is one.

        Raises:
            GraphError: The run has no store to keep the question in, or the answer is of another
                type.
            Suspended: There is no answer yet.
        """
        journal = self.journal
        if journal is None:
            raise GraphError(
                f"ask() at {path} needs a store to wait in: g.run(..., run='name', store='runs.db')"
            )
        recorded = journal.result(path, call)
        if recorded is not None:
            return cast(T, recorded[0])
        if path in self.answers:
            return cast(T, self._answer(path, call, journal))
        question = cast(dict[str, Any], call.request)["question"]
        journal.record_ask(path, question)
        await self._suspend(place, path, question)

    def _answer(self, path: str, call: Call[Any], journal: Journal) -> object:
        """An answer that was given, checked and recorded."""
        given = self.answers[path]
        try:
            answer = call.decode(given)
        except ValidationError as error:
            raise GraphError(
                f"the answer to {path} ({call.name}) does not fit: "
                f"{error.errors(include_url=False)[0]['msg']}, got {shorten(given)}; answer again"
            ) from error
        del self.answers[path]
        now = perf_counter()
        journal.record_result(path, call, answer, self._when(now, now))
        self.emit(path, "answer", answer)
        return answer

    async def _suspend(self, place: Here, path: str, question: object) -> NoReturn:
        self.waiting[path] = question
        self.emit(path, "ask", question)
        await place.quiet()
        raise Suspended

    async def _interrupted(self, place: Here, path: str, call: Call[Any]) -> tuple[Any] | None:
        """What an effect gave that may or may not have happened: somebody has to say.

        Returns:
            The result in a tuple; `None` if it is to be run after all.
        """
        assert self.journal is not None
        if self.answers.get(path) is RETRY:
            del self.answers[path]
            return None
        if path in self.answers:
            return (self._answer(path, call, self.journal),)
        question = {
            "interrupted": call.name,
            "request": call.request,
            "answer": "its result if it happened, agentloop.RETRY if it did not",
        }
        place.finish()
        try:
            await self._suspend(place, path, question)
        finally:
            place.begin()

    def unasked(self) -> GraphError | None:
        """The error if answers were given that nothing asked for."""
        if not self.answers or self.is_stopped:
            return None
        waiting = ", ".join(self.waiting) or "nothing"
        return GraphError(
            f"run {self.name!r} was given answers to {', '.join(self.answers)}, but it waits for "
            f"{waiting}; use the paths in result.waiting"
        )

    def admit(self, path: str) -> None:
        """Count a node that is about to run.

        Raises:
            LimitError: It would be one more than the run may take.
        """
        self.num_steps += 1
        if self._max_steps is not None and self.num_steps > self._max_steps:
            self.is_over = True
            raise LimitError(
                f"run {self.name!r} reached its limit of {self._max_steps} steps before {path}; "
                "raise max_steps, or bound its loops with g.route(..., limit=n, then=...)"
            )

    def lift_limits(self) -> None:
        """Let the way out run: what the main line waits for is of no use any more."""
        self.spending.lift()
        self._max_steps = None
        self.waiting.clear()
        if not self.is_stopped:  # those given to a resumed run are for the way out
            self.answers.clear()
        self.is_over = self.is_stopped = False

    async def leaf(
        self, leaf: Leaf, spec: StateSpec[Any], values: Patch, path: str, *arguments: object
    ) -> tuple[Patch, object]:
        """Run a node: its patch and what it returned."""
        self.admit(path)
        if self.journal is not None:
            done = self.journal.patch(path, spec)
            if done is not None:
                self.emit(path, "node.replay", done[0])
                return done
            if self.is_stopped and self.journal.skipped(path) is None:
                raise Suspended
        if self._gate is None and not leaf.num_retries and leaf.on_error == "raise":
            return await self._attempt(leaf, spec, values, Here(self, path), arguments)
        if leaf.on_error == "raise":
            return await self._tries(leaf, spec, values, path, arguments)
        recorded = self.journal.skipped(path) if self.journal is not None else None
        try:
            if recorded is not None:
                raise GraphError(recorded)
            return await self._tries(leaf, spec, values, path, arguments)
        except Exception as error:
            if recorded is None:
                self.skip(path, error)
            if not isinstance(leaf.on_error, Leaf):
                return {}, None
            return await self.leaf(leaf.on_error, spec, values, f"{path}!", *arguments, error)

    def skip(self, path: str, error: Exception) -> None:
        """Leave a failed step out of the run, for good. Raises what must not be passed over."""
        if self.is_over or isinstance(error, JournalError):
            raise error
        inside = (f"{path}:", f"{path}~", f"{path}/", f"{path}[")  # nobody needs to answer these
        for questions in (self.waiting, self.answers):
            for place in [place for place in questions if place.startswith(inside)]:
                del questions[place]
        if self.journal is not None:
            self.journal.record_skip(path, error)
        self.emit(path, "skip", error)

    async def _tries(
        self,
        leaf: Leaf,
        spec: StateSpec[Any],
        values: Patch,
        path: str,
        arguments: tuple[object, ...],
    ) -> tuple[Patch, object]:
        for attempt in range(1, leaf.num_retries + 2):
            place = Here(self, path, attempt)
            try:
                if self._gate is None:
                    return await self._attempt(leaf, spec, values, place, arguments)
                async with self._gate:
                    return await self._attempt(leaf, spec, values, place, arguments)
            except Exception as error:
                if attempt > leaf.num_retries or self.is_over:
                    raise
                self.emit(path, "node.retry", error)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self,
        leaf: Leaf,
        spec: StateSpec[Any],
        values: Patch,
        place: Here,
        arguments: tuple[object, ...],
    ) -> tuple[Patch, object]:
        started = perf_counter()
        path = place.path
        self.log.append(Event(self.name, path, "node.start", None, started - self._started))
        draft = spec.draft(values, leaf.name)
        here.set(place)
        try:
            if leaf.is_async and leaf.timeout_s is None:
                choice = await leaf.call(draft, *arguments)
            else:
                choice = await call_leaf(leaf, draft, arguments)
            if choice is not None or leaf.choices:
                check_choice(leaf.name, leaf.choices, choice)
        except Suspended:
            close_draft(draft)
            raise
        except BaseException as error:
            close_draft(draft)
            if isinstance(error, Exception):
                error.add_note(f"in node {leaf.name!r} at {path!r} of run {self.name!r}")
            self.emit(path, "node.error", error)
            raise
        patch = close_draft(draft)
        self.commit(path, patch, choice, started, leaf)
        return patch, choice
