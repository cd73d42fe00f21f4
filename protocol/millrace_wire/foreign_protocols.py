"""What a port speaks that does not speak millrace, by the first bytes it sends.

Pure. Owns the signatures, and requests that make a server of HTTP or Kafka send something: the one
waits for the end of a line, the other for a request of its own.
"""

from __future__ import annotations

import struct
from typing import Final

FIRST_BYTES: Final = 8
"""As many bytes are enough to recognize every protocol below."""

HTTP_REQUEST: Final = b"HEAD / HTTP/1.0\r\n\r\n"

_KAFKA_CORRELATION_ID: Final = 0x6D72
_KAFKA_API_VERSIONS: Final = 18
_KAFKA_BODY: Final = struct.pack(">hhih", _KAFKA_API_VERSIONS, 0, _KAFKA_CORRELATION_ID, -1)
KAFKA_REQUEST: Final = struct.pack(">i", len(_KAFKA_BODY)) + _KAFKA_BODY

_TLS_HELLO: Final = (
    b"\x03\x03"  # TLS 1.2, and 32 bytes that are random where a connection is meant to last
    + bytes(32)
    + b"\x00"  # no session
    + bytes.fromhex("0008 c02f c02b c030 c02c")  # AES-GCM over ECDHE with RSA or ECDSA
    + b"\x01\x00"  # no compression
    + bytes.fromhex("001a")  # extensions:
    + bytes.fromhex("000a 0006 0004 001d 0017")  # groups X25519 and secp256r1
    + bytes.fromhex("000d 000c 000a 0403 0804 0401 0805 0501")  # signatures
)
TLS_CLIENT_HELLO: Final = (
    struct.pack(">BHHBBH", 22, 0x0301, 4 + len(_TLS_HELLO), 1, 0, len(_TLS_HELLO)) + _TLS_HELLO
)
"""What a TLS client sends first (RFC 5246, 7.4.1.2). A server answers with a record, be it an
alert."""
_TLS_RECORDS: Final = range(0x14, 0x18)
_MILLRACE_TEXT: Final = b"ERR "
"""A broker takes an HTTP request for lines of the text dialect."""
_HTTP: Final = "it speaks HTTP; give the address of a broker, whose port is 9092 by default"
_TLS: Final = "it speaks TLS; put tls:// before the address, or give a port without TLS"
_KAFKA: Final = (
    "it is a Kafka broker; millrace clients speak millrace's own protocol, to millrace brokers"
)


def resemblance(first: bytes) -> str | None:
    """What a peer is that begins so, and what to do; None where it may be anything.

    >>> resemblance(b"HTTP/1.1")
    'it speaks HTTP; give the address of a broker, whose port is 9092 by default'
    """
    if first.startswith((b"HTTP", b"<!DOCTYP", b"<html")):
        return _HTTP
    if len(first) > 1 and first[0] in _TLS_RECORDS and first[1] == 3:
        return _TLS
    if first[4:] == struct.pack(">i", _KAFKA_CORRELATION_ID):
        return _KAFKA
    if first.startswith(_MILLRACE_TEXT):
        return None
    if len(first) > 3 and all(0x20 <= byte < 0x7F for byte in first[:4]):
        return f"it answers with text that begins with {first.decode('ascii', 'replace')!r}"
    return None
