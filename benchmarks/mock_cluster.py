"""librdkafka's mock cluster in a process of its own: the broker the peer clients are measured on.

It is a real TCP server that speaks Kafka's protocol, written in C, without a disk; it keeps the
last 5 MiB of each partition. The Python binding can only start it inside a client and with four
partitions per topic, so this calls the C library that confluent-kafka brings along. Run by the
harness as `python -m benchmarks.mock_cluster TOPIC=PARTITIONS ...`; prints its address.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.processes import child, python_module, read_line

_PRODUCER = 0
_ERROR_BYTES = 512


@contextlib.contextmanager
def mock_cluster(log: Path, topics: Mapping[str, int]) -> Iterator[str]:
    """A mock cluster of one broker with these topics (name to partitions): its address."""
    arguments = [f"{name}={partitions}" for name, partitions in topics.items()]
    with child(python_module("benchmarks.mock_cluster", *arguments), log=log) as process:
        yield read_line(process, log)


def _library() -> ctypes.CDLL:
    """The C library, at the path where the binding's import has mapped it."""
    import confluent_kafka  # noqa: F401

    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/librdkafka" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[5])
    raise OSError("confluent-kafka is imported and no librdkafka is mapped")


def _start(topics: Mapping[str, int]) -> str:
    library = _library()
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    library.rd_kafka_conf_new.restype = pointer
    library.rd_kafka_new.restype = pointer
    library.rd_kafka_new.argtypes = [number, pointer, text, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.restype = pointer
    library.rd_kafka_mock_cluster_new.argtypes = [pointer, number]
    library.rd_kafka_mock_cluster_bootstraps.restype = text
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [pointer]
    library.rd_kafka_mock_topic_create.argtypes = [pointer, text, number, number]
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    client = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), error, _ERROR_BYTES)
    if not client:
        raise OSError(f"librdkafka does not start: {error.value.decode()}")
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    for name, partitions in topics.items():
        if library.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1):
            raise OSError(f"the mock cluster refuses topic {name} of {partitions} partitions")
    bootstraps: bytes = library.rd_kafka_mock_cluster_bootstraps(cluster)
    return bootstraps.decode()


def _disable_nagle() -> None:
    """Gives every listening socket of this process TCP_NODELAY, which its connections inherit.

    Brokers set it; the mock does not, and its responses would wait for delayed acks of 40 ms.
    """
    for entry in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as sock:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            continue


def main(arguments: list[str]) -> None:
    pairs = (argument.split("=") for argument in arguments)
    address = _start({name: int(partitions) for name, partitions in pairs})
    _disable_nagle()
    print(address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
