"""Every error this package raises on purpose. Imports nothing; anyone may import it.

AgentLoopError
├── GraphError
│   ├── GraphBuildError
│   ├── StateError
│   ├── LimitError
│   ├── ToolError
│   └── JournalError
│       ├── DeterminismError
│       └── RunBusyError
├── ModelError
│   ├── CheckpointError
│   ├── ContextLengthError
│   ├── QueueFullError
│   ├── DeadlineError
│   ├── DecodingError
│   │   └── ContradictionError
│   └── ConstraintError
│       ├── UnsupportedSchemaError
│       │   └── CompileLimitError
│       ├── CompileCancelledError
│       └── CanvasTooSmallError
└── RetrievalError
    ├── DocumentError
    └── IndexCorruptError
"""


class AgentLoopError(Exception):
    """Base class: catch this to catch anything agentloop raises on purpose."""


class GraphError(AgentLoopError):
    """A graph was built wrongly or a run of it failed."""


class GraphBuildError(GraphError):
    """The graph's definition breaks a rule; nothing has run yet."""


class StateError(GraphError):
    """A node wrote something its state does not permit; nothing was stored.

    Attributes:
        node: The node that wrote, `""` outside a run.
        field: The field of the state.
        expected: What the field takes.
        got: What was written, shortened.
    """

    def __init__(
        self, message: str, *, node: str = "", field: str = "", expected: str = "", got: str = ""
    ) -> None:
        self.node = node
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(message)


class LimitError(GraphError):
    """A loop, a run or a call went over a limit that the graph sets."""


class ToolError(GraphError):
    """A tool was called with arguments its schema refuses, or its result is of the wrong type.

    Attributes:
        tool: The tool's name.
        pointer: JSON pointer of the offending place in the arguments, `""` for the whole.
        expected: What the schema takes there.
        got: What came, shortened.
    """

    def __init__(
        self, message: str, *, tool: str = "", pointer: str = "", expected: str = "", got: str = ""
    ) -> None:
        self.tool = tool
        self.pointer = pointer
        self.expected = expected
        self.got = got
        super().__init__(message)


class JournalError(GraphError):
    """A recorded run cannot be read, continued or written."""


class DeterminismError(JournalError):
    """A resumed node makes another call than the one recorded at the same place."""


class RunBusyError(JournalError):
    """Another writer has the run: a process that is alive, or one that took it over."""


class ModelError(AgentLoopError):
    """The language model or its decoder refused the request."""


class CheckpointError(ModelError):
    """A folder or file does not hold the weights that its configuration promises."""


class ContextLengthError(ModelError):
    """Prompt and canvas together are longer than the model's context."""


class QueueFullError(ModelError):
    """More calls wait for the model than it was told to hold; none of those handed over was taken.

    Attributes:
        num_waiting: Calls that wait.
        limit: How many may.
    """

    def __init__(self, num_waiting: int, num_new: int, limit: int) -> None:
        self.num_waiting = num_waiting
        self.limit = limit
        super().__init__(
            f"{num_waiting:,} calls wait for the model and {num_new:,} more were made at once, but "
            f"it holds {limit:,} at most; make fewer calls at a time, or load it with a larger "
            "max_waiting"
        )


class DeadlineError(ModelError):
    """A call was not answered by its deadline.

    Attributes:
        after_s: Seconds from the call to the moment it was given up.
        num_steps: Passes of the network it had by then.
    """

    def __init__(self, after_s: float, num_steps: int) -> None:
        self.after_s = after_s
        self.num_steps = num_steps
        had = f"after {num_steps} passes" if num_steps else "while it waited"
        super().__init__(
            f"the call was not answered by its deadline and was given up {had}, {after_s:.2f} s "
            "after it was made; give it more time, a higher priority or a lower effort"
        )


class DecodingError(ModelError):
    """A canvas could not be decoded: the fixed text contradicts its constraint."""


class ContradictionError(DecodingError):
    """The committed tokens of a canvas lie on no text that its constraint accepts.

    Attributes:
        position: The first canvas position where what is committed cannot go on.
        got: What stands there.
        allowed: Some of the tokens that could stand there.
        num_allowed: How many could.
    """

    def __init__(self, position: int, got: str, allowed: tuple[str, ...], num_allowed: int) -> None:
        self.position = position
        self.got = got
        self.allowed = allowed
        self.num_allowed = num_allowed
        more = f" and {num_allowed - len(allowed)} more" if num_allowed > len(allowed) else ""
        super().__init__(
            f"no accepted text holds the committed tokens: they stop being extendable at canvas "
            f"position {position}, which holds {got}; allowed there after what precedes it: "
            f"{', '.join(allowed) or 'nothing'}{more}; mask that position or change the fixed text"
        )


class ConstraintError(ModelError):
    """A constraint is not well formed."""


class UnsupportedSchemaError(ConstraintError):
    """A JSON Schema uses something that cannot be represented exactly.

    Attributes:
        pointer: JSON pointer of the offending place, `""` for the root.
        keyword: The keyword that is refused, or `""` where the place itself is at fault.
        reason: Why it is refused.
    """

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason
        where = f"#{pointer}" if pointer else "# (the root)"
        what = f"keyword {keyword!r}" if keyword else "schema"
        super().__init__(f"{what} at {where} is not supported: {reason}")


class CompileLimitError(UnsupportedSchemaError):
    """A constraint would take more states, steps or time to compile than it may.

    Attributes:
        limit: What there would be too much of: `"states"`, `"steps"` or `"seconds"`.
    """

    def __init__(self, pointer: str, reason: str, *, limit: str) -> None:
        self.limit = limit
        super().__init__(pointer, "", reason)


class CompileCancelledError(ConstraintError):
    """The compilation of a constraint was given up, because nobody waits for it any more."""


class CanvasTooSmallError(ConstraintError):
    """The shortest text a constraint accepts is longer than the canvas.

    Attributes:
        needed: Tokens that the shortest accepted text needs, end of text included.
        available: Tokens that the canvas has.
    """

    def __init__(self, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(
            f"the constraint needs at least {needed} tokens but the canvas has {available}; "
            f"raise max_tokens to {needed} or more, or loosen the constraint"
        )


class RetrievalError(AgentLoopError):
    """An index or a search failed."""


class DocumentError(RetrievalError):
    """A file or folder could not be read as documents."""


class IndexCorruptError(RetrievalError):
    """An index file is damaged or was written by an incompatible version."""
