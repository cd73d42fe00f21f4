"""A millrace client from wire_spec.md alone, with nothing but `socket` and `struct`.

    python examples/raw_client.py 127.0.0.1:9092

Creates a topic, produces three records, reads them back; comments name the rules followed.
"""

import socket
import struct
import sys
import time
from typing import BinaryIO

PRODUCE, FETCH, HELLO, CREATE_TOPICS, EXISTS = 0, 1, 18, 19, 36
TOPIC = "raw-client-demo"


def string(text: str) -> bytes:  # W-3.3
    return struct.pack(">h", len(text.encode())) + text.encode()


def varint(number: int) -> bytes:  # W-5.3.1
    rest, encoded = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        encoded, rest = encoded + bytes([rest & 0x7F | 0x80]), rest >> 7
    return encoded + bytes([rest])


def crc32c(data: bytes) -> int:  # W-5.1
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record_batch(values: list[bytes], timestamp_ms: int) -> bytes:  # W-5
    records = b""
    for delta, value in enumerate(values):  # W-5.3: neither key nor headers
        record = b"\0\0" + varint(delta) + varint(-1) + varint(len(value)) + value + b"\0"
        records += varint(len(record)) + record
    fields = (0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    covered = struct.pack(">hiqqqhii", *fields) + records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


class Reader:
    """Takes one field after the other (W-2.5)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(">" + layout, self.take(struct.calcsize(">" + layout)))

    def string(self) -> str:  # null reads as empty
        return self.take(max(self.numbers("h")[0], 0)).decode()

    def varint(self) -> int:
        rest = shift = 0
        while (byte := self.take(1)[0]) > 0x7F:
            rest, shift = rest | (byte & 0x7F) << shift, shift + 7
        rest |= byte << shift
        return (rest >> 1) ^ -(rest & 1)


def records(batches: Reader, from_offset: int) -> list[tuple[int, bytes]]:  # W-5, uncompressed
    found = []
    while batches.position < len(batches.data):
        base_offset, *_, count = batches.numbers("qiibIhiqqqhii")
        for _ in range(count):
            end = batches.varint() + batches.position
            batches.take(1)  # attributes
            batches.varint()  # timestamp delta
            offset = base_offset + batches.varint()
            batches.take(max(batches.varint(), 0))  # key
            found.append((offset, batches.take(max(batches.varint(), 0))))
            batches.position = end
    return [(offset, value) for offset, value in found if offset >= from_offset]  # W-4.4.1


def ask(stream: BinaryIO, api: int, body: bytes) -> Reader:  # W-2.2, W-2.3
    stream.write(struct.pack(">I2sHHIh", 12 + len(body), b"MR", api, 0, api, 0) + body)
    stream.flush()
    answer = Reader(stream.read(struct.unpack(">I", stream.read(4))[0]))
    _, _, _, correlation_id, error = answer.numbers("HHHIh")
    assert correlation_id == api
    if error:  # W-2.4
        raise SystemExit(f"refused, error {error}: {answer.string()}")
    return answer


def check(answer: Reader, before_error: str, *allowed: int) -> None:  # W-4.0.2: the first result
    answer.numbers("i")
    answer.string()
    *_, error = answer.numbers(before_error + "h")
    message = answer.string()
    if error not in (0, *allowed):
        raise SystemExit(f"error {error}: {message}")


def main(address: str) -> None:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        stream = connection.makefile("rwb")
        hello = ask(stream, HELLO, string("raw-client") + string("1.0"))  # W-4.1
        print("connected to", hello.string(), hello.string())

        one = struct.pack(">i", 1)  # an array of one, W-3.5
        topic = string(TOPIC) + struct.pack(">ihii", 1, -1, 0, 0)  # W-4.7
        check(ask(stream, CREATE_TOPICS, one + topic + b"\0"), "", EXISTS)

        batch = record_batch([b"one", b"two", b"three"], int(time.time() * 1000))
        partition = string(TOPIC) + struct.pack(">ii", 0, len(batch)) + batch  # W-4.3
        produced = ask(stream, PRODUCE, struct.pack(">hi", -1, 10_000) + one + partition)
        check(produced, "i")
        (base_offset,) = produced.numbers("q")
        print("produced 3 records from offset", base_offset)

        wanted = string(TOPIC) + struct.pack(">iiqi", 0, -1, base_offset, 1 << 20)  # W-4.4
        limits = struct.pack(">iii", 1_000, 1, 1 << 20)
        fetched = ask(stream, FETCH, limits + one + wanted + b"\xff\xff")  # no rack
        check(fetched, "i")
        fetched.numbers("qqii")
        for offset, value in records(fetched, base_offset):
            print(offset, value.decode())


if __name__ == "__main__":
    main(sys.argv[1])
