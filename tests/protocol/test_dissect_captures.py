"""Captures: file formats and link layers, and TCP streams after all that a network does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.dissect import (
    CaptureError,
    Segment,
    dissect,
    dissect_segments,
    is_capture,
    read_segments,
)
from millrace_protocol.spec.examples import EXAMPLES

REQUEST = EXAMPLES["fetch-request"]
RESPONSE = EXAMPLES["fetch-response"]


def tcp(payload: bytes, *, sequence: int = 1, flags: int = 0x18) -> bytes:
    return struct.pack(">HHIIBBHHH", 5000, 9092, sequence, 0, 5 << 4, flags, 0, 0, 0) + payload


def ipv4(payload: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, 6, 0)
    return head + ip_address("10.0.0.1").packed + ip_address("10.0.0.2").packed + payload


def ipv6(payload: bytes) -> bytes:
    options = bytes([6, 0]) + bytes(6)
    head = struct.pack(">IHBB", 6 << 28, len(options + payload), 0, 64)
    return head + ip_address("::1").packed + ip_address("fe80::2").packed + options + payload


def pcap(
    packets: list[bytes], *, link_type: int = 1, order: str = "<", magic: int = 0xA1B2C3D4
) -> bytes:
    file = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for number, packet in enumerate(packets):
        file += struct.pack(f"{order}IIII", 100 + number, 7, len(packet), len(packet)) + packet
    return file


def pcapng(packets: list[bytes], *, link_type: int = 1, order: str = "<") -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(f"{order}I", 12 + len(body))
        return struct.pack(f"{order}I", kind) + size + body + size

    file = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    resolution = struct.pack(f"{order}HHB3xHH", 9, 1, 9, 0, 0)
    file += block(1, struct.pack(f"{order}HHI", link_type, 0, 0) + resolution)
    for number, packet in enumerate(packets):
        time_ns = (100 + number) * 1_000_000_000 + 7
        size = len(packet)
        head = struct.pack(f"{order}IIIII", 0, time_ns >> 32, time_ns & 0xFFFFFFFF, size, size)
        file += block(6, head + packet)
    return file


ETHERNET = bytes(12) + b"\x08\x00"
LINKS: dict[str, tuple[int, bytes]] = {
    "ethernet": (1, ETHERNET),
    "ethernet with a VLAN": (1, bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
    "linux cooked": (113, bytes(14) + b"\x08\x00"),
    "linux cooked 2": (276, b"\x08\x00" + bytes(18)),
    "loopback": (0, b"\x02\x00\x00\x00"),
    "raw": (101, b""),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("ip", [ipv4, ipv6])
def test_every_link_type_leads_to_the_frame(link: str, ip: Callable[[bytes], bytes]) -> None:
    link_type, head = LINKS[link]
    padding = bytes(6) if "ethernet" in link else b""
    file = pcap([head + ip(tcp(REQUEST)) + padding], link_type=link_type)
    (span,) = dissect(file)
    assert span.name.endswith(":9092 Fetch request v0 #4")
    assert not list(span.faults())


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_and_both_clocks_are_read(order: str) -> None:
    packet = ETHERNET + ipv4(tcp(REQUEST))
    micro, nano = (
        next(read_segments(pcap([packet], order=order, magic=magic)))
        for magic in (0xA1B2C3D4, 0xA1B23C4D)
    )
    modern = next(read_segments(pcapng([packet], order=order)))
    assert (micro.time_ns, nano.time_ns) == (100_000_007_000, 100_000_000_007)
    assert modern == nano
    assert (nano.source, nano.destination) == ("10.0.0.1:5000", "10.0.0.2:9092")
    assert nano.payload == REQUEST


def test_a_capture_that_ends_inside_a_packet_ends_there() -> None:
    packet = ETHERNET + ipv4(tcp(REQUEST))
    for file in (pcap([packet, packet]), pcapng([packet, packet])):
        assert len(list(read_segments(file[:-10]))) == 1


def test_a_link_type_that_is_not_understood_is_refused_with_advice() -> None:
    with pytest.raises(CaptureError, match="link type 147 is not understood: capture on Ethernet"):
        list(read_segments(pcap([b"????"], link_type=147)))
    with pytest.raises(CaptureError, match="neither a pcap nor a pcapng file"):
        list(read_segments(b"hello"))


def segments(payloads: list[tuple[int, bytes]], *, syn: int | None = 0) -> list[Segment]:
    made = [Segment(0, "a:1", "b:9092", syn, True, b"")] if syn is not None else []
    made += [Segment(1, "a:1", "b:9092", sequence, False, data) for sequence, data in payloads]
    return made


def names(made: list[Segment]) -> list[str]:
    return [sighting.span.name for sighting in dissect_segments(made)]


@given(st.data())
def test_segments_cut_doubled_and_shuffled_give_the_same_frames(data: st.DataObject) -> None:
    stream = REQUEST * 3
    first = data.draw(st.sampled_from([1, 2**32 - 50]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    pieces = list(zip([0, *cuts], [*cuts, len(stream)], strict=True))
    overlapping = [(max(0, start - data.draw(st.integers(0, 9))), end) for start, end in pieces]
    shuffled = data.draw(st.permutations(overlapping + pieces[:2]))
    made = segments(
        [((first + start) & 0xFFFFFFFF, stream[start:end]) for start, end in shuffled],
        syn=(first - 1) & 0xFFFFFFFF,
    )
    sightings = list(dissect_segments(made))
    assert [bytes(s.span.buffer or b"") for s in sightings] == [REQUEST] * 3
    assert not [fault for s in sightings for fault in s.span.faults()]


def test_a_hole_is_reported_and_the_next_frame_is_found() -> None:
    size = len(REQUEST)
    made = segments([(1, REQUEST + REQUEST[:20]), (41 + size, REQUEST[40:] + RESPONSE)])
    sightings = list(dissect_segments(made))
    assert [s.span.name for s in sightings] == [
        "Fetch request v0 #4",
        "Fetch request v0 #4",
        "hole",
        "Fetch response v0 #4",
    ]
    assert sightings[1].span.fault.startswith("cut short")
    assert sightings[2].span.fault == "20 bytes are not in the capture"
    assert not sightings[3].span.fault


def test_a_capture_begun_inside_a_frame_starts_with_the_next() -> None:
    assert names(segments([(500, RESPONSE[-9:] + REQUEST)], syn=None)) == ["Fetch request v0 #4"]


def test_a_port_used_again_is_a_new_stream() -> None:
    again = [Segment(2, "a:1", "b:9092", 9000, True, b"")]
    again.append(Segment(3, "a:1", "b:9092", 9001, False, REQUEST))
    assert names(segments([(1, REQUEST + REQUEST[:30])]) + again) == ["Fetch request v0 #4"] * 3


def test_frames_leave_in_the_order_of_the_conversation() -> None:
    there = Segment(1, "a:1", "b:9092", 1, False, REQUEST)
    back = Segment(2, "b:9092", "a:1", 1, False, RESPONSE)
    then = Segment(3, "a:1", "b:9092", 1 + len(REQUEST), False, EXAMPLES["hello-request"])
    other = Segment(4, "a:1", "c:80", 1, False, b"GET / HTTP/1.1\r\n")
    found = list(dissect_segments([there, back, then, other], port=9092))
    assert [(s.source, s.span.name) for s in found] == [
        ("a:1", "Fetch request v0 #4"),
        ("b:9092", "Fetch response v0 #4"),
        ("a:1", "Hello request v0 #1"),
    ]


@given(st.binary(max_size=120), st.sampled_from([pcap([]), pcap([], order=">"), pcapng([])]))
def test_any_bytes_behind_a_capture_header_are_segments_or_a_capture_error(
    data: bytes, head: bytes
) -> None:
    assert is_capture(head)
    try:
        assert all(isinstance(s, Segment) for s in read_segments(head + data))
    except CaptureError:
        return


@given(st.binary(max_size=80), st.sampled_from(sorted(LINKS)))
def test_any_packet_at_all_is_a_segment_or_none(data: bytes, link: str) -> None:
    link_type, head = LINKS[link]
    for ip in (b"\x45", b"\x60", b""):
        assert len(list(read_segments(pcap([head + ip + data], link_type=link_type)))) <= 1
