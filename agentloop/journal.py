"""A run's journal: what was recorded, given back in place of running it again.

A node that is through has a row with its patch and choice; a call inside a node has one with its
result. Resuming walks the graph as before and takes recorded patches without calling the node;
a node that was interrupted runs again, but its recorded calls give what they gave.

Everything is recorded as JSON: what a type's JSON form loses (infinity inside a pydantic model) is
lost here as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from agentloop.context import Call
from agentloop.errors import DeterminismError, GraphError, JournalError
from agentloop.json_data import as_object
from agentloop.spending import Spent, spent_on
from agentloop.state import StateSpec
from agentloop.stores import Row, RunLog

_SHOWN_LENGTH = 200


def encode(value: object, what: str) -> bytes:
    """A value as JSON.

    Raises:
        JournalError: It has no JSON form.
    """
    try:
        return to_json(value, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise JournalError(f"{what} cannot be recorded as JSON: {error}") from error


class Journal:
    """The recorded part of one run, and the recording of the rest.

    Attributes:
        run: The run's name.
        is_done: Whether the run had come to its end.
        num_replayed: Patches taken from the record so far.
        reached_limit: The limit at which the run left its main line, if it did.
        trace: What a listener recorded to find the run's trace again, if one did.
    """

    def __init__(self, run: str, log: RunLog) -> None:
        self.run = run
        self.is_done = False
        self.num_replayed = 0
        self.reached_limit: str | None = None
        self.trace: str | None = None
        self._log = log
        self._start: dict[str, Any] | None = None
        self._rows: dict[tuple[str, str], bytes] = {}
        for row in log.rows:
            if row.kind == "start":
                self._start = self._parse(row.path, row.kind, row.data)
            elif row.kind == "end":
                self.is_done = True
            elif row.kind == "limit":
                self.reached_limit = str(self._parse(row.path, row.kind, row.data).get("limit"))
            elif row.kind == "trace":
                self.trace = str(self._parse(row.path, row.kind, row.data).get("trace"))
            elif row.kind != "error":
                self._rows[row.kind, row.path] = row.data

    # ---------------------------------------------------------------- start and end

    def start(
        self,
        spec: StateSpec[Any],
        values: Mapping[str, Any] | None,
        fingerprint: str,
        is_migrating: bool,
    ) -> dict[str, Any]:
        """The values the run starts with: those recorded, or those given to a new run.

        Raises:
            JournalError: The run is new and no state was given; or it is not, and the state or the
                graph is another than the recorded.
        """
        if self._start is None:
            if values is None:
                raise JournalError(
                    f"run {self.run!r} is not in the store and no state was given to start it with"
                )
            data = {"graph": fingerprint, "state": values}
            self._record("", "start", encode(data, f"the state of run {self.run!r}"))
            return dict(values)
        recorded = self._start
        if recorded.get("graph") != fingerprint and not is_migrating:
            raise JournalError(
                f"run {self.run!r} was recorded with another graph (fingerprint "
                f"{recorded.get('graph')}, now {fingerprint}): states, steps or routes changed; "
                "continue it with the graph it began with, or accept the change with migrate=True"
            )
        if is_migrating and recorded.get("graph") != fingerprint:
            recorded = {**recorded, "graph": fingerprint}
            self._record("", "start", encode(recorded, "the start"))
        start = self.decode_patch(spec, recorded.get("state"), "start", is_whole=True)
        if values is not None and encode(values, "state") != encode(start, "state"):
            raise JournalError(
                f"run {self.run!r} was started with another state; leave the state out to resume "
                "it, or use another name for a new run"
            )
        return start

    def end(self) -> None:
        """Record that the run has come to its end."""
        if not self.is_done:
            self._record("", "end", b"{}")
            self.is_done = True

    def record_error(self, error: Exception) -> None:
        """Record what the run failed with, for those who look at it; it may go on all the same."""
        text = f"{type(error).__name__}: {error}"
        self._record("", "error", encode({"error": text}, "an error"))

    def record_limit(self, error: Exception) -> None:
        """Record that the run leaves its main line for its way out."""
        if self.reached_limit is None:
            self.reached_limit = str(error)
            self._record("", "limit", encode({"limit": str(error)}, "a limit"))

    def record_trace(self, trace: str) -> None:
        """Record where the run's trace is to be found."""
        if trace != self.trace:
            self.trace = trace
            self._record("", "trace", encode({"trace": trace}, "a trace"))

    async def flush(self) -> None:
        """Wait until everything recorded so far would survive a crash."""
        await self._log.flush()

    # ---------------------------------------------------------------- patches

    def patch(self, path: str, spec: StateSpec[Any]) -> tuple[dict[str, Any], object] | None:
        """The recorded patch and choice of a node, `None` if it has to run."""
        data = self._rows.pop(("patch", path), None)
        if data is None:
            return None
        entry = self._parse(path, "patch", data)
        self.num_replayed += 1
        choice = entry.get("choice")
        if not isinstance(choice, str | None):
            raise JournalError(f"run {self.run!r} has a damaged row at {path}: a choice is a name")
        return self.decode_patch(spec, entry.get("patch"), path), choice

    def record_patch(
        self, path: str, patch: Mapping[str, Any], choice: object, when: tuple[float, float]
    ) -> None:
        """Record that a node is through; when it began and how long it took are for readers."""
        entry: dict[str, Any] = {"patch": patch, "when": when}
        if choice is not None:
            entry["choice"] = choice
        self._record(path, "patch", encode(entry, f"what node {path} wrote"))

    def skipped(self, path: str) -> str | None:
        """The recorded error of an item that `each` left out, `None` if there is none."""
        data = self._rows.get(("skip", path))
        return None if data is None else str(self._parse(path, "skip", data).get("error"))

    def record_skip(self, path: str, error: Exception) -> None:
        """Record that an item failed and was left out."""
        text = f"{type(error).__name__}: {error}"
        self._record(path, "skip", encode({"error": text}, "an error"))

    def decode_patch(
        self, spec: StateSpec[Any], patch: object, path: str, is_whole: bool = False
    ) -> dict[str, Any]:
        """A recorded patch as values of its state's types. What is not valid is refused."""
        fields = as_object(patch)
        known = spec.state.model_fields
        if fields is None or (is_whole and set(fields) != set(known)):
            raise JournalError(f"run {self.run!r} has a damaged row at {path or 'its start'}")
        try:
            return {name: spec.decode(name, value) for name, value in fields.items()}
        except (ValidationError, KeyError) as error:
            raise JournalError(
                f"run {self.run!r} has a row at {path} that {spec.state.__name__} refuses: {error}"
            ) from error

    # ---------------------------------------------------------------- calls

    def result(self, path: str, call: Call[Any]) -> tuple[Any] | None:
        """The recorded result of a call, in a tuple; `None` if it has to be made.

        Raises:
            DeterminismError: Another call is recorded at this place.
        """
        data = self._rows.get(("call", path))
        if data is None:
            return None
        entry = self._parse(path, "call", data)
        asked, digest = _asked(call)
        if entry.get("digest") != digest:
            raise DeterminismError(
                f"resuming run {self.run!r}, the call at {path} was {entry.get('asked')}, but now "
                f"it is {asked}; what a node asks may depend only on its state and on the results "
                "of its calls (use now() and random() instead of a clock and a generator)"
            )
        try:
            return (call.decode(entry.get("result")),)
        except (ValueError, KeyError, TypeError, GraphError) as error:
            raise JournalError(
                f"run {self.run!r}: the recorded result of {call.name} at {path} is not valid: "
                f"{error}"
            ) from error

    def record_result(
        self, path: str, call: Call[Any], result: object, when: tuple[float, float]
    ) -> None:
        """Record what a call gave, when it began and how long it took."""
        asked, digest = _asked(call)
        entry = {"asked": asked, "digest": digest, "result": call.encode(result), "when": when}
        spent = spent_on(call, result)
        if spent.num_tokens or spent.cost:
            entry["spent"] = [spent.num_tokens, spent.cost]
        data = encode(entry, f"the result of {call.name} at {path}")
        self._record(path, "call", data, is_kept=call.effect != "none")  # for a retry of the node

    def spent(self) -> Iterator[Spent]:
        """What the recorded calls took."""
        for (kind, path), data in self._rows.items():
            if kind != "call":
                continue
            entry = self._parse(path, kind, data)
            asked, _, rest = str(entry.get("asked")).partition(" ")
            if asked == "ask":
                continue  # an answer took nothing
            match entry.get("spent", [0, 0.0]):
                case [int(num_tokens), int(cost) | float(cost)]:
                    yield Spent(asked, rest.partition(" ")[0], num_tokens, cost)
                case other:
                    raise JournalError(
                        f"run {self.run!r} has a damaged call row at {path}: it spent {other!r}"
                    )

    def has_intent(self, path: str) -> bool:
        """Whether an effect was about to run when the run was interrupted."""
        return ("intent", path) in self._rows

    async def record_intent(self, path: str) -> None:
        """Record, safely, that an effect is about to run."""
        if not self.has_intent(path):
            self._record(path, "intent", b"{}", is_kept=True)
        await self.flush()

    def is_asked(self, path: str) -> bool:
        """Whether the run waits, or waited, for an answer at a place."""
        return ("ask", path) in self._rows

    def record_ask(self, path: str, question: object) -> None:
        """Record that the run waits for an answer."""
        if not self.is_asked(path):
            self._record(
                path, "ask", encode({"question": question}, f"the question at {path}"), is_kept=True
            )

    # ---------------------------------------------------------------- rows

    def _record(self, path: str, kind: str, data: bytes, *, is_kept: bool = False) -> None:
        """Append a row; keep it at hand only if this process may ask for it again."""
        if is_kept:
            self._rows[kind, path] = data
        self._log.append(Row(path, kind, data))

    def _parse(self, path: str, kind: str, data: bytes) -> dict[str, Any]:
        try:
            entry = as_object(from_json(data))
        except ValueError as error:
            raise JournalError(
                f"run {self.run!r} has a damaged {kind} row at {path or 'its start'}: {error}"
            ) from error
        if entry is None:
            raise JournalError(f"run {self.run!r} has a damaged {kind} row at {path}: no object")
        return entry


def _asked(call: Call[Any]) -> tuple[str, str]:
    """A call as text to show, and a digest that tells it from another."""
    try:
        request = to_json(call.request, fallback=repr, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise GraphError(f"the request of {call.name} cannot be recorded: {error}") from error
    digest = hashlib.sha256(f"{call.kind} {call.name} ".encode() + request).hexdigest()[:16]
    shown = request.decode(errors="replace")
    cut = shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}..."
    return f"{call.kind} {call.name} {cut}", digest
