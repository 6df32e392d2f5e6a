"""The command `agentloop`, also as `python -m agentloop`.

Exit codes: 0 done, 1 an error that is told on standard error, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentloop.cli import app
from agentloop.errors import AgentLoopError
from agentloop.terminal import print_error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code.

    Args:
        arguments: What follows the command's name; None takes them from the command line.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="agentloop")
    except AgentLoopError as error:
        print_error(str(error))
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
