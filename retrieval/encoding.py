"""From bytes to text: byte order marks, UTF-8, declared and guessed encodings.

Decoding never fails and never drops a byte silently: what no encoding explains is U+FFFD.
"""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

_MARKS = (  # the longer mark first: UTF-32-LE begins with UTF-16-LE's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE_LENGTH = 1 << 16  # bytes shown to the detector: its cost is per byte and candidate
# Guesses that are almost always Windows-1252 in a file of today.
_EXOTIC = re.compile(r"mac_|cp775|cp437|cp85\d|hp_|iso8859_|cp1257|cp1250")
_SYMBOL_IN_WORD = re.compile(r"[^\W\d_][\u00a1-\u00bf\u0192\u02c6\u02dc\u2020-\u203a][^\W\d_]")


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    r"""Text of a file and the name of the encoding it was read with.

    Line ends become `\n`; NUL becomes U+FFFD, since text holds none.

    Args:
        data: The whole file.
        declared: Encoding that the file claims, tried after the byte order mark and UTF-8.
    """
    name = _encoding(data, declared)
    text = data.decode(name, errors="replace")
    return clean(text), name


def clean(text: str) -> str:
    r"""Text that can be stored: `\n` line ends, no NUL, no lone surrogate."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _encoding(data: bytes, declared: str | None) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    wide = _wide(data[:4096])
    for candidate in (wide, "utf-8", declared):
        if candidate is not None and _decodes(data, candidate):
            return candidate
    return _guess(data)


def _decodes(data: bytes, name: str) -> bool:
    try:
        data.decode(name)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a mark, told by its zero bytes: most ASCII falls in every other place."""
    if len(sample) < 4 or b"\x00" not in sample:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _guess(data: bytes) -> str:
    matches = from_bytes(data[:_SAMPLE_LENGTH])
    best = matches.best()
    western = "cp1252" if _decodes(data, "cp1252") else "latin-1"
    if best is None:
        return western
    plausible = any(match.encoding == "cp1252" for match in matches)
    if _EXOTIC.match(best.encoding) and (plausible or not best.encoding.startswith("cp1250")):
        view = data.decode(western, errors="replace")
        if not _SYMBOL_IN_WORD.search(view):
            return western
    return best.encoding if _decodes(data, best.encoding) else western
