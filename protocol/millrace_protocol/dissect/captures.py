"""Capture files, pcap and pcapng, as a sequence of TCP segments.

Owns file formats and link layers: which bytes of a packet are IP, and which of those are TCP.
Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, tcpdump.org/linktypes. IP fragments and
anything that is not TCP are left out.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from millrace_protocol.dissect.span import Buffer

_PCAP_MAGIC_MICRO = 0xA1B2C3D4
_PCAP_MAGIC_NANO = 0xA1B23C4D
_PCAPNG_SECTION = 0x0A0D0D0A
_PCAPNG_BYTE_ORDER = 0x1A2B3C4D
_PACKET_BYTES_MAX = 1 << 24

LINK_NULL = 0
LINK_ETHERNET = 1
LINK_RAW = 101
_LINK_HEADER_SIZES = {
    LINK_NULL: 4,
    LINK_ETHERNET: 14,
    12: 0,
    14: 0,
    LINK_RAW: 0,
    108: 4,
    113: 16,
    228: 0,
    229: 0,
    276: 20,
}
"""Bytes before the IP header: NULL, Ethernet, raw (three numbers), LOOP, SLL, IPv4, IPv6, SLL2."""
_VLAN_TAGS = (0x8100, 0x88A8)
_TCP = 6
_IPV4 = struct.Struct(">2xH2xHxB2x4s4s")
_IPV4_FRAGMENT_MASK = 0x3FFF
_IPV6 = struct.Struct(">4xHBx16s16s")
_IPV6_OPTIONS = (0, 43, 60)


class CaptureError(ValueError):
    """The bytes are not a capture in a known format; the message names the problem."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment. `time_ns` is since the epoch; -1 when the source has no clock."""

    time_ns: int
    source: str
    destination: str
    sequence: int
    is_syn: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Packet:
    time_ns: int
    link_type: int
    data: memoryview


def is_capture(data: Buffer) -> bool:
    """Whether the bytes open like a pcap or pcapng file."""
    head = bytes(memoryview(data)[:4])
    if head == _PCAPNG_SECTION.to_bytes(4, "big"):
        return True
    numbers = {int.from_bytes(head, "big"), int.from_bytes(head, "little")}
    return len(head) == 4 and not numbers.isdisjoint({_PCAP_MAGIC_MICRO, _PCAP_MAGIC_NANO})


def read_segments(data: Buffer) -> Iterator[Segment]:
    """The TCP segments of a capture file, in its order.

    A file that ends inside a packet, as a running capture does, ends there. Raises
    `CaptureError` for what is no capture and for link types that are not understood.
    """
    if not is_capture(data):
        raise CaptureError("neither a pcap nor a pcapng file")
    view = memoryview(data)
    is_pcapng = int.from_bytes(view[:4], "big") == _PCAPNG_SECTION
    for packet in _pcapng_packets(view) if is_pcapng else _pcap_packets(view):
        segment = read_packet(packet.data, packet.link_type, time_ns=packet.time_ns)
        if segment is not None:
            yield segment


def _pcap_packets(view: memoryview) -> Iterator[_Packet]:
    big = int.from_bytes(view[:4], "big")
    order = ">" if big in (_PCAP_MAGIC_MICRO, _PCAP_MAGIC_NANO) else "<"
    if len(view) < 24:
        raise CaptureError(f"a pcap header has 24 bytes and {len(view)} are there")
    magic, link_type = struct.unpack_from(f"{order}I16xI", view)
    unit_ns = 1 if magic == _PCAP_MAGIC_NANO else 1000
    record = struct.Struct(f"{order}IIII")
    position = 24
    while position + record.size <= len(view):
        seconds, fraction, size, _ = record.unpack_from(view, position)
        position += record.size
        if size > _PACKET_BYTES_MAX:
            raise CaptureError(f"a packet of {size} bytes at byte {position}: the file is damaged")
        if position + size > len(view):
            return
        time_ns = seconds * 1_000_000_000 + fraction * unit_ns
        yield _Packet(time_ns, link_type & 0xFFFF, view[position : position + size])
        position += size


def _pcapng_packets(view: memoryview) -> Iterator[_Packet]:
    order = "<"
    interfaces: list[tuple[int, int]] = []
    position = 0
    while position + 12 <= len(view):
        block_type = int.from_bytes(view[position : position + 4], "big")
        if block_type == _PCAPNG_SECTION:
            mark = int.from_bytes(view[position + 8 : position + 12], "big")
            order = ">" if mark == _PCAPNG_BYTE_ORDER else "<"
            interfaces = []
        block_type, size = struct.unpack_from(f"{order}II", view, position)
        if size < 12 or size % 4 or size > _PACKET_BYTES_MAX:
            raise CaptureError(f"a block of {size} bytes at byte {position}: the file is damaged")
        if position + size > len(view):
            return
        body = view[position + 8 : position + size - 4]
        if block_type == 1 and len(body) >= 8:
            interfaces.append(_interface(body, order))
        elif block_type == 6 and len(body) >= 20:
            yield from _enhanced_packet(body, order, interfaces)
        elif block_type == 3 and len(body) >= 4 and interfaces:
            yield _Packet(-1, interfaces[0][0], body[4:])
        position += size


def _enhanced_packet(
    body: memoryview, order: str, interfaces: list[tuple[int, int]]
) -> Iterator[_Packet]:
    interface, high, low, size = struct.unpack_from(f"{order}IIII", body)
    if interface >= len(interfaces):
        raise CaptureError(f"a packet of interface {interface}, which the file does not describe")
    link_type, units_per_second = interfaces[interface]
    time_ns = ((high << 32) | low) * 1_000_000_000 // units_per_second
    yield _Packet(time_ns, link_type, body[20 : 20 + size])


def _interface(body: memoryview, order: str) -> tuple[int, int]:
    """The link type, and how many units of time a second has (option 9, `if_tsresol`)."""
    link_type: int = struct.unpack_from(f"{order}H", body)[0]
    position = 8
    while position + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, position)
        if code == 9 and size == 1 and position + 4 < len(body):
            resolution = body[position + 4]
            units = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
            return link_type, units
        if code == 0:
            break
        position += 4 + (size + 3) // 4 * 4
    return link_type, 1_000_000


def read_packet(packet: Buffer, link_type: int, *, time_ns: int = -1) -> Segment | None:
    """The TCP segment in one packet, or None if it holds none. Raises `CaptureError`."""
    size = _LINK_HEADER_SIZES.get(link_type)
    if size is None:
        raise CaptureError(
            f"link type {link_type} is not understood: capture on Ethernet, Linux cooked (any), "
            "loopback or raw IP"
        )
    view = memoryview(packet)
    if link_type == LINK_ETHERNET:
        while int.from_bytes(view[size - 2 : size], "big") in _VLAN_TAGS:
            size += 4
    ip = view[size:]
    if not len(ip):
        return None
    try:
        if ip[0] >> 4 == 4:
            return _ipv4(ip, time_ns)
        if ip[0] >> 4 == 6:
            return _ipv6(ip, time_ns)
    except (struct.error, IndexError):
        return None
    return None


def _ipv4(ip: memoryview, time_ns: int) -> Segment | None:
    total, fragment, protocol, source, destination = _IPV4.unpack_from(ip)
    if protocol != _TCP or fragment & _IPV4_FRAGMENT_MASK:
        return None
    # Segmentation offload leaves a total of 0: the capture's own length is all there is.
    tcp = ip[(ip[0] & 0xF) * 4 : total or len(ip)]
    return _tcp(
        tcp, time_ns, str(ipaddress.IPv4Address(source)), str(ipaddress.IPv4Address(destination))
    )


def _ipv6(ip: memoryview, time_ns: int) -> Segment | None:
    payload_size, next_header, source, destination = _IPV6.unpack_from(ip)
    position = _IPV6.size
    end = position + payload_size if payload_size else len(ip)
    while next_header in _IPV6_OPTIONS:
        next_header, position = ip[position], position + 8 * (ip[position + 1] + 1)
    if next_header != _TCP:
        return None
    return _tcp(
        ip[position:end],
        time_ns,
        f"[{ipaddress.IPv6Address(source)}]",
        f"[{ipaddress.IPv6Address(destination)}]",
    )


def _tcp(tcp: memoryview, time_ns: int, source: str, destination: str) -> Segment | None:
    source_port, destination_port, sequence, offset, flags = struct.unpack_from(">HHI4xBB", tcp)
    payload = bytes(tcp[(offset >> 4) * 4 :])
    is_syn = bool(flags & 0x02)
    return Segment(
        time_ns,
        f"{source}:{source_port}",
        f"{destination}:{destination_port}",
        sequence,
        is_syn,
        payload,
    )
