"""The ways in which language models space their JSON, applied to a compact text.

The text is cut into its tokens, never parsed, so that numbers and escapes stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^"{}\[\],:\s]+')


@dataclass(frozen=True)
class Style:
    """One way to space JSON.

    Attributes:
        comma: What follows a comma on the same line.
        colon: What follows a colon.
        indent: One level of indentation; None keeps everything on one line.
        pad: What stands inside the brackets of a container that is not empty, on one line.
        flat_arrays: Whether arrays stay on one line where objects are broken.
    """

    comma: str = ""
    colon: str = ""
    indent: str | None = None
    pad: str = ""
    flat_arrays: bool = False


STYLES: dict[str, Style] = {
    "compact": Style(),
    "spaced": Style(comma=" ", colon=" "),
    "colons only": Style(colon=" "),
    "commas only": Style(comma=" "),
    "padded": Style(comma=" ", colon=" ", pad=" "),
    "indent 2": Style(colon=" ", indent="  "),
    "indent 4": Style(colon=" ", indent="    "),
    "tabs": Style(colon=" ", indent="\t"),
    "indent 2, arrays on one line": Style(comma=" ", colon=" ", indent="  ", flat_arrays=True),
    "lines without indentation": Style(colon=" ", indent=""),
}


def respaced(text: str, style: Style) -> str:
    """A compact JSON text in another spacing.

    Example:
        >>> respaced('{"a":[1,2],"b":[]}', STYLES["spaced"])
        '{"a": [1, 2], "b": []}'
    """
    return "".join(_pieces(text, style))


def _pieces(text: str, style: Style) -> Iterator[str]:
    tokens: list[str] = _TOKEN.findall(text)
    is_broken: list[bool] = []  # of each open container: whether its parts have their own lines
    for at, token in enumerate(tokens):
        if token in "}]":
            is_empty = tokens[at - 1] in "{["
            broke = is_broken.pop()
            yield "" if is_empty else _break(style, len(is_broken), style.pad, broke=broke)
        yield token
        if token in "{[":
            flat = style.indent is None or (token == "[" and style.flat_arrays)
            is_broken.append(not flat and all(is_broken))
            if tokens[at + 1] not in "}]":
                yield _break(style, len(is_broken), style.pad, broke=is_broken[-1])
        elif token == ",":
            yield _break(style, len(is_broken), style.comma, broke=is_broken[-1])
        elif token == ":":
            yield style.colon


def _break(style: Style, level: int, otherwise: str, *, broke: bool) -> str:
    return "\n" + (style.indent or "") * level if broke else otherwise
