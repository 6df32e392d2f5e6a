"""What a tool of another program gives back, as a value of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import mcp_types as types

from agentloop.drafts import shorten
from agentloop.errors import ToolError

_ERROR_LENGTH = 1000


def result_value(name: str, result: types.CallToolResult, max_length: int) -> Any:
    """The value of a result: its structured content if there is some, else its text.

    Args:
        name: The tool's name, for errors.
        result: What the server sent; the SDK has checked it against the tool's output schema.
        max_length: Characters to take at most; more comes as text that says where it was cut.

    Raises:
        ToolError: The server says that the call failed.
    """
    if result.is_error:
        text = cut(_text(result.content), _ERROR_LENGTH)
        raise ToolError(f"tool {name!r} failed: {text or 'no reason was given'}", tool=name)
    value = result.structured_content
    if value is None:
        return cut(_text(result.content), max_length)
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= max_length else cut(text, max_length)


def cut(text: str, max_length: int) -> str:
    """A text of bounded length, which says if something is missing.

    Example:
        >>> cut("abcdef", 4)
        'abcd [cut here: 2 characters more]'
    """
    more = len(text) - max_length
    return text if more <= 0 else f"{text[:max_length]} [cut here: {more:,} characters more]"


def _text(content: Iterable[types.ContentBlock]) -> str:
    return "\n".join(map(_block, content))


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type} left out: {shorten(block.mime_type, 60)}]"
        case types.ResourceLink():
            return f"[resource {shorten(str(block.uri), 200)}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case types.EmbeddedResource(resource=resource):
            return f"[resource left out: {shorten(str(resource.uri), 200)}]"
