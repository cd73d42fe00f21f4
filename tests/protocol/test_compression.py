"""Every codec in the framing that Kafka's clients use, and never more output than allowed."""

import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    Codec,
    CompressionError,
    DecompressedTooLarge,
    check_produced_batch,
    compress,
    decompress,
    encode_batch,
)
from millrace_protocol.records.compression import EXPANSION_MAX

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1024 * 1024
FOREIGN_ENCODE = {
    Codec.GZIP: aiokafka_codec.gzip_encode,
    Codec.SNAPPY: aiokafka_codec.snappy_encode,
    Codec.LZ4: aiokafka_codec.lz4_encode,
    Codec.ZSTD: aiokafka_codec.zstd_encode,
}
FOREIGN_DECODE = {
    Codec.GZIP: aiokafka_codec.gzip_decode,
    Codec.SNAPPY: aiokafka_codec.snappy_decode,
    Codec.LZ4: aiokafka_codec.lz4_decode,
    Codec.ZSTD: aiokafka_codec.zstd_decode,
}


def mixed(size: int) -> bytes:
    """Bytes that compress somewhat, the same every time."""
    rng = random.Random(size)
    return b"".join(rng.randbytes(8) + b"a repeated phrase " for _ in range(size // 26 + 1))[:size]


@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(1, 400))
def test_compressed_bytes_are_decompressed_equal(codec: Codec, data: bytes, repeats: int) -> None:
    data = data * repeats
    compressed = compress(data, codec)
    assert decompress(compressed, codec, limit_bytes=len(data)) == data
    assert decompress(memoryview(compressed), codec, limit_bytes=len(data) + 1) == data


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("size", [1, 32 * 1024, 32 * 1024 + 1, 300_000])
def test_aiokafka_reads_ours_and_we_read_aiokafkas(codec: Codec, size: int) -> None:
    data = mixed(size)
    assert bytes(FOREIGN_DECODE[codec](compress(data, codec))) == data
    assert decompress(bytes(FOREIGN_ENCODE[codec](data)), codec, limit_bytes=size) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_level_reaches_its_codec(codec: Codec) -> None:
    data = b",".join(b"%d" % (number * number) for number in range(20_000))
    strong = compress(data, codec, level=9)
    assert strong != compress(data, codec, level=1)
    assert decompress(strong, codec, limit_bytes=len(data)) == data


def test_lz4_blocks_are_independent_and_have_no_content_checksum() -> None:
    descriptor = compress(mixed(200_000), Codec.LZ4)[4]
    assert descriptor >> 6 == 1
    assert descriptor & 0b0010_0000, "block independence flag"
    assert not descriptor & 0b0000_0100, "content checksum flag"


def test_snappy_is_a_xerial_stream_of_32_kib_blocks() -> None:
    data = mixed(70_000)
    stream = compress(data, Codec.SNAPPY)
    assert stream[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, blocks = 16, []
    while position < len(stream):
        size = struct.unpack_from(">i", stream, position)[0]
        block = stream[position + 4 : position + 4 + size]
        blocks.append(bytes(cramjam.snappy.decompress_raw(block)))
        position += 4 + size
    assert [len(block) for block in blocks] == [32768, 32768, 70_000 - 65536]
    assert b"".join(blocks) == data


def test_snappy_of_the_c_clients_is_one_raw_block() -> None:
    data = mixed(70_000)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(raw, Codec.SNAPPY, limit_bytes=len(data)) == data


def test_snappy_of_redpandas_producers_has_a_little_endian_version() -> None:
    data = mixed(1000)
    stream = compress(data, Codec.SNAPPY)
    swapped = stream[:8] + struct.pack("<ii", 1, 1) + stream[16:]
    assert decompress(swapped, Codec.SNAPPY, limit_bytes=len(data)) == data


def test_a_zstd_frame_without_content_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    data = mixed(MIB)
    compressor.compress(data)
    streamed = bytes(compressor.finish())
    assert streamed[4] & 0b1110_0000 == 0, "the frame has no content size"
    assert decompress(streamed, Codec.ZSTD, limit_bytes=len(data)) == data


def test_a_gzip_trailer_that_lies_about_the_size_is_refused() -> None:
    compressed = gzip.compress(mixed(100_000))
    for claim in (0, 5, 0xFFFFFFFF):
        lying = compressed[:-4] + claim.to_bytes(4, "little")
        with pytest.raises(CompressionError):
            decompress(lying, Codec.GZIP, limit_bytes=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = mixed(200_000)
    compressed = compress(data, codec)
    assert len(decompress(compressed, codec, limit_bytes=200_000)) == 200_000
    with pytest.raises(DecompressedTooLarge, match="199999"):
        decompress(compressed, codec, limit_bytes=199_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused_before_it_takes_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(bytes(64 * MIB), codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(bomb, codec, limit_bytes=4 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_truncated_stream_is_refused(codec: Codec) -> None:
    compressed = compress(mixed(3000), codec)
    blocks = {16} if codec is Codec.SNAPPY else set()
    for size in set(range(1, len(compressed))) - blocks:
        with pytest.raises(CompressionError):
            decompress(compressed[:size], codec, limit_bytes=MIB)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_stay_below_the_limit(codec: Codec, data: bytes) -> None:
    for stream in (data, compress(b"record" * 20, codec)[:20] + data):
        try:
            assert len(decompress(stream, codec, limit_bytes=1000)) <= 1000
        except CompressionError as error:
            assert str(error)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_no_byte_becomes_more_than_its_codec_allows(codec: Codec) -> None:
    compressed = compress(bytes(32 * MIB), codec, level=None if codec is Codec.SNAPPY else 9)
    assert len(compressed) * EXPANSION_MAX[codec] >= 32 * MIB


def test_the_densest_zstd_frame_is_within_the_bound() -> None:
    """Blocks that repeat one byte, each of 128 KiB, in a window of 256 KiB."""
    block = 1 << 17
    blocks = [(last | 1 << 1 | block << 3).to_bytes(3, "little") + b"\0" for last in (0, 0, 0, 1)]
    frame = b"\x28\xb5\x2f\xfd\x00\x40" + b"".join(blocks)
    assert decompress(frame, Codec.ZSTD, limit_bytes=MIB) == bytes(4 * block)
    assert 4 * block == EXPANSION_MAX[Codec.ZSTD] * sum(map(len, blocks))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_batch_of_the_smallest_records_may_be_produced_with_every_codec(codec: Codec) -> None:
    """W-5.6"""
    batch = encode_batch([None] * 100_000, timestamps_ms=1, codec=codec)
    assert check_produced_batch(batch, max_bytes=len(batch)).record_count == 100_000
