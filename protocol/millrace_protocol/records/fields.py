"""The fields of a record, read one at a time.

Owns what each field's own bytes can get wrong. Refuses to know where the record lies: `decode` and
`arrow`, which read the common cases faster than this, add that. The layout is drawn in `encode`.
"""


class Malformed(Exception):
    """The fault of a record, as the end of a sentence about it."""


def read_varint(buf: bytes, position: int) -> tuple[int, int]:
    """Read one number of up to 64 bits; return it and where it ends."""
    byte = buf[position]
    position += 1
    number = byte & 0x7F
    shift = 7
    while byte > 127:
        byte = buf[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise Malformed("has a number of more than ten bytes")
    if number > 0xFFFF_FFFF_FFFF_FFFF:
        raise Malformed("has a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), position


def read_nullable(buf: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes, which do not reach beyond `end`."""
    size, position = read_varint(buf, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise Malformed(f"has a field of {size} bytes where {end - position} are left")
    return buf[position : position + size], position + size


def read_headers(
    buf: bytes, position: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Read `count` headers; two bytes is the least that one takes.

    A field of less than 64 bytes is read in place and not held against `end`: the caller compares
    where the headers end with where the record does.
    """
    if not 0 <= count <= (end - position) // 2:
        raise Malformed(f"has a count of {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        size = buf[position]
        if size & 0x81:
            name, position = read_nullable(buf, position, end)
            if name is None:
                raise Malformed("has a header without a name")
        else:
            start = position + 1
            position = start + (size >> 1)
            name = buf[start:position]
        size = buf[position]
        if size & 0x81:
            value, position = read_nullable(buf, position, end)
        else:
            start = position + 1
            position = start + (size >> 1)
            value = buf[start:position]
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed(f"has a header whose name is not UTF-8, {name[:40]!r}") from error
    return tuple(headers), position
