"""The four codecs of a record batch, in the framings that Kafka's clients read and write.

Owns framing, default levels and the bound on what decompression may allocate. Knows nothing of
batches: bytes in, bytes out. Sources: Kafka protocol guide, "Compression"; KIP-57 (lz4 frames);
KIP-110 (zstd); the xerial snappy-java stream format.

    snappy   82 'SNAPPY' 00 | version i32 = 1 | compatible i32 = 1 | (size i32, raw snappy)*
    lz4      one frame, blocks independent: Kafka's Java code refuses linked blocks
    zstd     frames, with or without a content size
    gzip     one member
"""

import enum
import mmap
import struct
from types import ModuleType
from typing import Final

import cramjam

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_SIZE = struct.Struct(">i")

_OUTPUT_BYTES_MIN: Final = 64 * 1024
_CLEARED_BYTES_MAX: Final = 1 << 20
"""A larger output is memory of its own that is clear when it is first touched, in the codec. Python
would clear it while every other thread waits: 10 ms for 16 MiB on a virtual machine."""
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""cramjam's message when the output does not fit; a test for each codec pins it."""


class Codec(enum.IntEnum):
    """The low three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


EXPANSION_MAX: Final = (1, 1032, 22, 255, 32_768)
"""By `Codec`, how many bytes one compressed byte may become at most (wire_spec.md W-5.6).

gzip: 258 bytes for two bits (zlib's technical notes). snappy: 64 bytes for the three of a copy.
lz4: 255 bytes for each byte of a match length. zstd: a block of 128 KiB for four bytes (RFC 8878,
3.1.1.2).
"""


class CompressionError(ValueError):
    """The bytes are not what the codec makes."""


class DecompressedTooLarge(CompressionError):
    """The bytes would decompress to more than the caller allows."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"decompresses to more than the limit of {self.limit_bytes} bytes"


def compress(data: bytes, codec: Codec, *, level: int | None = None) -> bytes:
    """Compress `data` as the payload of one batch.

    `level` is the codec's own scale. The defaults are the fast ends of the scales, gzip 1 and
    zstd 1, which is where a log's throughput is; snappy has no levels and ignores it.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=1 if level is None else level))
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    return bytes(cramjam.zstd.compress(data, level=1 if level is None else level))


def decompress(data: bytes | memoryview, codec: Codec, *, limit_bytes: int) -> bytes:
    """Decompress one batch's payload to at most `limit_bytes`.

    Never allocates more than `limit_bytes` of output, whatever the frame claims. Raises
    `DecompressedTooLarge`, or `CompressionError` for bytes the codec cannot have made.
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit_bytes)
    if codec is Codec.GZIP:
        # The last four bytes of a gzip member are its size before compression, modulo 2**32.
        guess = min(int.from_bytes(data[-4:], "little"), len(data) * EXPANSION_MAX[codec])
        return _decompress_growing(cramjam.gzip, data, guess, limit_bytes)
    module = cramjam.lz4 if codec is Codec.LZ4 else cramjam.zstd
    return _decompress_growing(module, data, len(data) * 4, limit_bytes)


def _decompress_growing(
    module: ModuleType, data: bytes | memoryview, guess_bytes: int, limit_bytes: int
) -> bytes:
    """Decompress into a buffer of our own, four times larger after each time it was too small.

    cramjam's `decompress` allocates whatever the frame expands to and its streaming objects keep
    everything, so the only bound it offers is an output buffer that ends. `guess_bytes` may be
    wrong: it is clamped, and costs a retry.
    """
    size = min(max(guess_bytes, _OUTPUT_BYTES_MIN), limit_bytes)
    while True:
        output = bytearray(size) if size <= _CLEARED_BYTES_MAX else mmap.mmap(-1, size)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CompressionError(f"not a valid stream: {error}") from error
            if size == limit_bytes:
                raise DecompressedTooLarge(limit_bytes) from error
            size = min(size * 4, limit_bytes)
        else:
            return bytes(memoryview(output)[:written])


def _compress_xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Read the xerial stream of the JVM clients, or the one raw block of the C clients.

    Redpanda's producers write version and compatibility little-endian, so neither is looked at.
    """
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit_bytes, limit_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise CompressionError(f"snappy stream header cut short at byte {len(data)}")
    parts = []
    view = memoryview(data)
    position, room = len(_XERIAL_HEADER), limit_bytes
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise CompressionError(f"snappy block size cut short at byte {position}")
        size = _BLOCK_SIZE.unpack_from(view, position)[0]
        position += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - position:
            raise CompressionError(f"snappy block of {size} bytes at byte {position} does not fit")
        part = _decompress_snappy_block(view[position : position + size], room, limit_bytes)
        parts.append(part)
        position += size
        room -= len(part)
    return b"".join(parts)


def _decompress_snappy_block(block: bytes | memoryview, room_bytes: int, limit_bytes: int) -> bytes:
    """Decompress one raw block; its first varint is the output size, which snappy enforces."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > room_bytes:
            raise DecompressedTooLarge(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"not a valid snappy block: {error}") from error
