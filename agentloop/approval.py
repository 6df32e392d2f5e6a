"""Approval: which calls that a model asks for need somebody's yes before they run.

A model that has read a text may do what the text says, whoever wrote it. So what matters about a
call is what it can do (its tool's `effect` and `sends`) and what the model had read when it asked
for it. A policy looks at both. Arguments are checked before anybody is asked, and what runs is what
was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentloop.asking import ask
from agentloop.errors import GraphError
from agentloop.model.prompts import Message
from agentloop.tools import Tool


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that a model asks for.

    Attributes:
        tool: The tool.
        arguments: Arguments that its schema accepts.
        sources: Where texts came from that the model had read and others may have written: names
            of tools, of documents. Empty if it had read nothing but its instructions and its user.
    """

    tool: Tool[..., Any]
    arguments: Mapping[str, Any]
    sources: tuple[str, ...] = ()


Policy: TypeAlias = Callable[[Proposal], str | None]
"""Says why a call needs approval, `None` if it does not."""

Approval: TypeAlias = Literal["effects", "tainted"] | Policy | None
"""`"tainted"` asks for what acts after others' texts were read, `"effects"` for all that acts."""


def acts(tool: Tool[..., Any]) -> bool:
    """Whether a call of a tool changes something, or tells somebody something."""
    return tool.effect != "none" or tool.sends


def effects(proposal: Proposal) -> str | None:
    """The policy `"effects"`: every call that acts needs approval."""
    if not acts(proposal.tool):
        return None
    does = "changes something" if proposal.tool.effect != "none" else "sends its arguments out"
    return f"{proposal.tool.name} {does}"


def tainted(proposal: Proposal) -> str | None:
    """The policy `"tainted"`: a call that acts needs approval once others' texts were read."""
    reason = effects(proposal)
    if reason is None or not proposal.sources:
        return None
    return f"{reason}, and the model had read what came from {', '.join(proposal.sources)}"


def policy_of(approval: Approval) -> Policy:
    """The policy that an option stands for.

    Raises:
        GraphError: It stands for none.
    """
    if approval is None:
        return lambda _: None
    if callable(approval):
        return approval
    policies: dict[str, Policy] = {"effects": effects, "tainted": tainted}
    if approval not in policies:
        names = ", ".join(map(repr, policies))
        raise GraphError(f"approve={approval!r} is no policy; use {names}, a function or None")
    return policies[approval]


async def refusal(proposal: Proposal, approval: Approval) -> str | None:
    """Why a call may not run, `None` if it may. Asks whoever started the run where it has to.

    The question holds the tool, the arguments and the reason; the answer is true or false. It waits
    in the run's store like any `ask`.

    Raises:
        GraphError: Somebody has to be asked, but the run has no store to wait in.
    """
    reason = policy_of(approval)(proposal)
    if reason is None:
        return None
    question = {
        "approve": proposal.tool.name,
        "arguments": dict(proposal.arguments),
        "because": reason,
    }
    if await ask(question, bool):
        return None
    return f"{proposal.tool.name} was not called: the user did not approve it"


def sources_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Where a conversation holds texts of others, as far as its messages tell: tools' results."""
    is_tainted = any(message["role"] == "tool" for message in messages)
    return ("a tool's result",) if is_tainted else ()
