"""Run the three agents and count the lines that a user writes for each.

    make agents

A line counts if it lies between `# agent` and `# end` and is not blank; imports are left out, and
all files are formatted by the same formatter.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from pathlib import Path

from benchmarks.same_agent import world

QUESTION = "Which river flows through the capital?"
AGENTS = ("ours", "in_langgraph", "in_pydantic_graph")


def num_lines(name: str) -> int:
    """Lines of an agent."""
    text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    body = text.split("# agent\n")[1].split("# end\n")[0]
    return sum(bool(line.strip()) for line in body.splitlines())


def main() -> None:
    """Print a row for each library that is installed."""
    for name in AGENTS:
        world.reset()
        try:
            module = importlib.import_module(f"benchmarks.same_agent.{name}")
        except ModuleNotFoundError as error:
            print(f"{name}: {num_lines(name)} lines, not run: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = asyncio.run(module.main(QUESTION, folder))
        print(f"{name}: {num_lines(name)} lines, {result}")


if __name__ == "__main__":
    main()
