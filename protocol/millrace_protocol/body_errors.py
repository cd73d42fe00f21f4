"""The errors of a message body that breaks the protocol (wire_spec.md W-3): one text for each.

The declared codec and the compiled one raise the same errors: the field's path from the message
down (`topics[3].name`), the problem, and the position of the first byte that is wrong.
"""

from __future__ import annotations

from millrace_protocol.errors import WireError


def short_value(field: str, type_name: str, *, size: int, left: int, position: int) -> WireError:
    """A value of `size` bytes begins at `position`, and the body ends `left` bytes later."""
    return WireError(
        f"{type_name} takes {size:,} bytes, {left:,} follow", field=field, position=position
    )


def bad_length(field: str, type_name: str, length: int, position: int) -> WireError:
    """The length of a string or of bytes is negative, and not the -1 of a null value."""
    return WireError(f"{type_name} has a length of {length}", field=field, position=position)


def bad_boolean(field: str, byte: int, position: int) -> WireError:
    """The byte of a boolean is neither 0 nor 1."""
    return WireError(f"boolean is {byte}, 0 or 1 allowed", field=field, position=position)


def not_utf8(field: str, error: UnicodeDecodeError, start: int) -> WireError:
    """The bytes of a string, from `start` on, are not UTF-8."""
    return WireError(
        f"string is not UTF-8: {error.reason}", field=field, position=start + error.start
    )


def bad_count(
    field: str, count: int, *, left: int, array_max: int, elements_max: int, position: int
) -> WireError:
    """The count of an array is negative, too large for the bytes that follow, or over a limit."""
    # An element takes at least one byte.
    if not 0 <= count <= left:
        problem = f"array of {count:,} elements, {left:,} bytes follow"
    elif count > array_max:
        problem = f"array of {count:,} elements, at most {array_max:,} allowed"
    else:
        problem = f"arrays of the body have more than {elements_max:,} elements together"
    return WireError(problem, field=field, position=position)


def bad_uvarint(field: str, position: int) -> WireError:
    """An unsigned varint does not end where the body does, or has more than 32 bits."""
    return WireError(
        "an unsigned varint of more than 32 bits, or without an end", field=field, position=position
    )


def too_many_tags(field: str, count: int, *, tags_max: int, position: int) -> WireError:
    """A struct has more tagged fields than a decoder is willing to loop over."""
    return WireError(
        f"{count:,} tagged fields, at most {tags_max} allowed", field=field, position=position
    )


def bad_tag_size(field: str, tag: int, size: int, position: int) -> WireError:
    """A tagged field is not as long as its size says."""
    return WireError(
        f"tagged field {tag} does not have {size} bytes", field=field, position=position
    )


def trailing_bytes(message_name: str, count: int, position: int) -> WireError:
    """The body goes on behind the message's last field."""
    return WireError(f"extra bytes after the {message_name}: {count:,}", position=position)
