r"""Text for a terminal: what could move the cursor or reorder a line becomes an escape.

Owns the choice of characters: controls, format characters (among them those that reverse the
direction of text), and the separators of lines and paragraphs. A name or a record can then not
change what the user sees of the text around it.
"""

from __future__ import annotations

from unicodedata import category

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str, *, keep: str = "", json: bool = False) -> str:
    r"""The text with `\xHH`, `\uHHHH` or `\UHHHHHHHH` for hidden characters that are not in `keep`.

    With `json`, the escapes are those of JSON, so that the text means the same.

    >>> visible("a\u202eb\x1b")
    'a\\u202eb\\x1b'
    """
    if text.isprintable():
        return text
    escape = _json_escape if json else _escape
    return "".join(
        escape(char) if category(char) in _HIDDEN and char not in keep else char for char in text
    )


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "record"), counted(1500, "record")
    ('1 record', '1,500 records')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
