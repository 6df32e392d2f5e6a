"""A call that is on its way, held in the hand: watch it, edit it, pin what is right, cancel it.

```python
handle = lm.start("Write a short greeting.", max_tokens=32)
async for draft in handle.drafts():
    if "Hello" in draft.text():
        handle.edit("Hello", "Good morning")
answer = await handle
```
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import CancelledError, Future
from typing import Any

from agentloop.errors import ModelError
from agentloop.model.edits import CanvasText, Change, pinned, reconciled, replaced, unpinned
from agentloop.model.engine import Job
from agentloop.model.generation import Draft, Generation
from agentloop.model.plan import ThinkingRow
from agentloop.model.request import Request
from agentloop.model.sampler import MASKED, CanvasRow, Mark
from agentloop.model.streams import Mailbox, SettledText

Span = tuple[int, int] | str
"""Slots of the latest draft, from the first up to but not with the last; or a text it holds."""


class Handle:
    """One call on its way. Its methods may be called from any thread.

    Changes take effect between two steps. Each is checked when it is made: one that contradicts
    the constraint raises and changes nothing.
    """

    def __init__(
        self,
        request: Request,
        encode: Callable[[str], list[int]],
        on_answer: Callable[[Generation], object],
    ) -> None:
        self._request = request
        self._on_answer = on_answer
        self._generation: Generation | None = None
        self._candidate = request.candidates[0]
        self._encode = encode
        self._lock = threading.RLock()
        self._changes: list[Change] = []
        self._listeners: list[Callable[[Draft, bool], None]] = []
        self._row: CanvasRow = self.job.row
        self._canvas = CanvasText.of(self._row)
        self._draft = request.draft(self._candidate)
        self._is_open = not self._row.done
        self.job.on_step = self._after_step

    @property
    def job(self) -> Job:
        """The call's way through the engine."""
        return self._candidate.job

    @property
    def open_jobs(self) -> list[Job]:
        """What the engine has to do for it; nothing where the constraint leaves no choice."""
        return self._request.open_jobs

    @property
    def draft(self) -> Draft:
        """The answer as it stood after the latest step."""
        return self._draft

    @property
    def done(self) -> bool:
        """Whether the answer is there, or the call failed or was cancelled."""
        return self.job.future.done()

    def edit(self, span: Span, text: str) -> None:
        """Put a text in place of a span and fix it; the rest adapts in the next steps.

        Raises:
            ContradictionError: No accepted text holds it beside what is fixed already.
            ModelError: The span is not on the canvas that is refined now, or the text does not fit.
        """
        with self._lock:
            start, stop = self._slots(span)
            self._change(replaced(start, stop, self._encode(text)))

    def pin(self, span: Span) -> None:
        """Keep a span as the latest draft shows it.

        Raises:
            ContradictionError: No accepted text holds it beside what is fixed already.
            ModelError: The span is not on the canvas that is refined now, or masked in part.
        """
        with self._lock:
            start, stop = self._slots(span)
            ids = self._canvas.tokens[start:stop].tolist()
            if MASKED in ids:
                raise ModelError(
                    f"slots {start} to {stop} of the canvas hold masks, expected text to pin; wait "
                    "for a later draft, or edit the span"
                )
            self._change(pinned(start, ids))

    def unpin(self, span: Span) -> None:
        """Let what was pinned or edited change again, if the model comes to doubt it.

        Raises:
            ModelError: The span is not on the canvas that is refined now.
        """
        with self._lock:
            self._change(unpinned(*self._slots(span)))

    def cancel(self) -> None:
        """Drop the call; whoever waits for it gets a cancellation."""
        for job in self._request.open_jobs:
            job.future.cancel()

    def result(self, timeout_s: float | None = None) -> Generation:
        """Wait for the answer, from code without an event loop.

        Raises:
            ModelError: The call was cancelled, or failed.
            TimeoutError: It took longer than `timeout_s`.
        """
        try:
            self.job.future.result(timeout_s)
        except CancelledError:
            raise ModelError("the call was cancelled before it was answered") from None
        return self._answer()

    def __await__(self) -> Generator[Any, None, Generation]:
        return self._awaited().__await__()

    async def _awaited(self) -> Generation:
        await asyncio.wrap_future(self.job.future)
        return self._answer()

    def _answer(self) -> Generation:
        """The finished answer, counted once."""
        with self._lock:
            if self._generation is None:
                self._generation = self._request.generation()
                self._on_answer(self._generation)
            return self._generation

    async def drafts(self) -> AsyncGenerator[Draft, None]:
        """The whole answer after every step from now on; leaving the loop cancels the call.

        A reader that is far behind misses drafts, never the last.
        """
        mailbox: Mailbox[Draft] = Mailbox()
        self._listen(lambda draft, _: mailbox.put(draft), mailbox.close)
        if self.done:
            mailbox.put(self._draft)
        try:
            async for draft in mailbox:
                yield draft
            await self._awaited()
            if not self._draft.final:  # the constraint left no choice about the last canvases
                self._draft = self._request.draft(self._candidate)
                yield self._draft
        finally:
            self.cancel()

    async def texts(self) -> AsyncGenerator[str, None]:
        """The answer piece by piece, each settled for good; leaving the loop cancels the call.

        What was handed out can neither be revised nor edited.
        """
        mailbox: Mailbox[None] = Mailbox(limit=1)
        settled = SettledText(self._request.settings.stop)
        latest = [""]

        def freeze(draft: Draft, is_thought: bool) -> None:
            if not is_thought:
                latest[0] = self._freeze(draft)
                mailbox.put(None)

        self._listen(freeze, mailbox.close)
        with self._lock:  # what the constraint leaves no choice about waits for no pass
            freeze(self._draft, isinstance(self._row, ThinkingRow))
        try:
            async for _ in mailbox:
                if piece := settled.more(latest[0], is_final=False):
                    yield piece
            if piece := settled.more((await self._awaited()).text, is_final=True):
                yield piece
        finally:
            self.cancel()

    def _freeze(self, draft: Draft) -> str:
        """The text ahead of the first masked slot, which may not change from now on."""
        count = draft.marks.index("masked") if "masked" in draft.marks else len(draft.marks)
        tokens = [*self._candidate.tokens, *self._row.text_tokens][:count]
        self._row.num_frozen = max(0, count - len(self._candidate.tokens))
        whole = self._request.vocabulary.text(tokens)
        return whole.decode("utf-8", errors="ignore")

    def _listen(self, on_draft: Callable[[Draft, bool], None], on_end: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.append(on_draft)

        def end(_: Future[Job]) -> None:
            on_end()

        self.job.future.add_done_callback(end)

    def _slots(self, span: Span) -> tuple[int, int]:
        """A span as slots of the canvas that is refined now."""
        if self.done or not self._is_open:
            raise ModelError("this text is finished and cannot be changed any more")
        if isinstance(self._row, ThinkingRow):
            raise ModelError("the model is still thinking; change the answer once it has begun")
        if isinstance(span, str):
            try:
                span = self._draft.span_of(span)
            except ValueError:
                raise ModelError(
                    f"the draft does not hold {span!r}; it is {self._draft.text()!r}"
                ) from None
        behind = len(self._candidate.tokens)
        start, stop = span[0] - behind, span[1] - behind
        if not self._row.num_frozen <= start <= stop <= self._row.length:
            first = behind + self._row.num_frozen
            raise ModelError(
                f"the span is {span}, expected slots from {first} to {behind + self._row.length}: "
                "what stands before is finished, or was handed out already"
            )
        return start, stop

    def _change(self, change: Change) -> None:
        """Check a change on the canvas as it was last seen, and note it for the engine."""
        self._canvas = self._reconciled(change(self._canvas))
        self._changes.append(change)
        self._draft = self._request.draft_of(self._candidate, self._canvas.tokens, self._marks())

    def _marks(self) -> list[Mark]:
        """What each slot is, after changes that the engine has not seen."""
        return [
            "masked" if token == MASKED else ("committed" if fixed == MASKED else "fixed")
            for token, fixed in zip(self._canvas.tokens, self._canvas.fixed, strict=True)
        ]

    def _reconciled(self, text: CanvasText) -> CanvasText:
        row = self._row
        return reconciled(row.compiled, text, row.start_state, row.room_after)

    def _after_step(self, job: Job) -> None:
        """Apply what was changed and tell whoever listens; runs in the engine's thread."""
        with self._lock:
            self._row = job.row
            canvas = CanvasText.of(job.row)
            if self._changes:
                for change in self._changes:
                    canvas = self._reconciled(change(canvas))
                self._changes.clear()
                job.row.restate(canvas.tokens, canvas.fixed)
                canvas = CanvasText.of(job.row)
            self._canvas = canvas
            self._is_open = not job.row.done
            self._draft = self._request.draft(self._candidate)
            for listener in self._listeners:
                listener(self._draft, isinstance(job.row, ThinkingRow))
