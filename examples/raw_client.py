"""A millrace client written from wire_spec.md alone: nothing but `socket` and `struct`.

    python examples/raw_client.py 127.0.0.1:9092

Says Hello, creates a topic, produces three records and reads them back. The comments name the
rules of the specification that the lines follow.
"""

import socket
import struct
import sys
import time
from typing import BinaryIO

PRODUCE, FETCH, HELLO, CREATE_TOPICS = 0, 1, 18, 19
TOPIC_ALREADY_EXISTS = 36
TOPIC = "raw-client-demo"


def string(text: str) -> bytes:  # W-3.3
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(*elements: bytes) -> bytes:  # W-3.5
    return struct.pack(">i", len(elements)) + b"".join(elements)


def varint(number: int) -> bytes:  # W-5.3.1
    rest = (number << 1) ^ (number >> 63)
    encoded = []
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def crc32c(data: bytes) -> int:  # W-5.1
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record_batch(values: list[bytes], timestamp_ms: int) -> bytes:  # W-5
    records = b""
    for delta, value in enumerate(values):  # W-5.3: no key, no headers
        record = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value
        record += varint(0)
        records += varint(len(record)) + record
    last, times, producer = len(values) - 1, (timestamp_ms, timestamp_ms), (-1, -1, -1)
    covered = struct.pack(">hiqqqhii", 0, last, *times, *producer, len(values)) + records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def request(api: int, correlation_id: int, body: bytes) -> bytes:  # W-2.2
    client_id = b"raw-client"
    header = struct.pack(">2sHHIh", b"MR", api, 0, correlation_id, len(client_id))
    return struct.pack(">I", len(header + client_id + body)) + header + client_id + body


class Body:
    """Reads the fields of a body one after the other (W-2.5)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(">" + layout, self.take(struct.calcsize(">" + layout)))

    def string(self) -> str | None:
        (size,) = self.numbers("h")
        return None if size < 0 else self.take(size).decode()

    def varint(self) -> int:
        rest = shift = 0
        while True:
            (byte,) = self.take(1)
            rest |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (rest >> 1) ^ -(rest & 1)
            shift += 7


def records(data: bytes, from_offset: int) -> list[tuple[int, bytes]]:  # W-5
    found, batch = [], Body(data)
    while batch.position < len(data):
        base_offset, _, _, _, _, attributes = batch.numbers("qiibIh")
        *_, count = batch.numbers("iqqqhii")
        if attributes & 7:
            raise SystemExit("the batch is compressed, which this example does not read (W-5.4)")
        for _ in range(count):
            end = batch.varint() + batch.position
            batch.take(1)
            batch.varint()
            offset = base_offset + batch.varint()
            batch.take(max(batch.varint(), 0))
            value = batch.take(max(batch.varint(), 0))
            batch.position = end
            if offset >= from_offset:  # W-4.4.1
                found.append((offset, value))
    return found


def ask(stream: BinaryIO, api: int, correlation_id: int, body: bytes) -> Body:
    stream.write(request(api, correlation_id, body))
    stream.flush()
    (length,) = struct.unpack(">I", stream.read(4))
    frame = stream.read(length)
    magic, answered, _, echoed, error = struct.unpack_from(">2sHHIh", frame)  # W-2.3
    assert (magic, answered, echoed) == (b"MR", api | 0x8000, correlation_id), frame[:12]
    answer = Body(frame[12:])
    if error:
        raise SystemExit(f"refused, error {error}: {answer.string()}")  # W-2.4
    return answer


def result(answer: Body, layout: str, *allowed: int) -> tuple[int, ...]:
    """The first of the results: its numbers behind the name and the error, W-4.0.2."""
    answer.numbers("i")
    answer.string()
    *numbers, error = answer.numbers(layout)
    message = answer.string()
    if error not in (0, *allowed):
        raise SystemExit(f"error {error}: {message}")
    return tuple(numbers)


def main(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        stream = connection.makefile("rwb")
        hello = ask(stream, HELLO, 1, string("raw-client") + string("1.0"))  # W-4.1
        print("connected to", hello.string(), hello.string(), "of cluster", hello.string())

        topic = string(TOPIC) + struct.pack(">ih", 1, -1) + array()  # W-4.7
        created = ask(stream, CREATE_TOPICS, 2, array(topic) + b"\0")
        result(created, "h", TOPIC_ALREADY_EXISTS)

        batch = record_batch([b"one", b"two", b"three"], int(time.time() * 1000))
        partition = string(TOPIC) + struct.pack(">ii", 0, len(batch)) + batch  # W-4.3
        produced = ask(stream, PRODUCE, 3, struct.pack(">hi", -1, 10_000) + array(partition))
        result(produced, "ih")
        (base_offset,) = produced.numbers("q16x")
        print("produced 3 records from offset", base_offset)

        wanted = string(TOPIC) + struct.pack(">iiqi", 0, -1, base_offset, 1 << 20)  # W-4.4
        fetched = ask(stream, FETCH, 4, struct.pack(">iii", 1_000, 1, 1 << 20) + array(wanted))
        result(fetched, "ih")
        _, _, size = fetched.numbers("qqi")
        for offset, value in records(fetched.take(size), base_offset):
            print(offset, value.decode())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python raw_client.py HOST:PORT")
    main(sys.argv[1])
