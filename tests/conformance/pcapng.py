# SPDX-License-Identifier: Apache-2.0
"""Reads a pcapng file (draft-ietf-opsawg-pcapng) without any code of Verbena: one section, in either byte order, with Ethernet
interfaces."""

import dataclasses
import struct

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
COMMENT, FLAGS = 1, 2
TIME_RESOLUTION = 9
RECEIVED, DROPPED = 4, 5


@dataclasses.dataclass
class Packet:
    number: int
    seconds: float
    frame: bytes
    length: int      # length on the wire
    comment: str
    direction: int   # 1: inbound, 2: outbound


@dataclasses.dataclass
class File:
    packets: list
    received: int
    dropped: int


def options(block, order):
    """(code, value) of each option."""
    found, at = {}, 0
    while at + 4 <= len(block):
        code, length = struct.unpack_from(order + "HH", block, at)
        if code == 0:
            return found
        found[code] = block[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return found


def blocks(data):
    """Yields (type, body, byte order) of each block. The two lengths of a block must be equal."""
    at, order = 0, None
    while at < len(data):
        if data[at:at + 4] == b"\n\r\r\n":
            order = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}[data[at + 8:at + 12]]
        kind, length = struct.unpack_from(order + "II", data, at)
        if length % 4 or at + length > len(data) or struct.unpack_from(order + "I", data, at + length - 4)[0] != length:
            raise ValueError(f"block at {at} of type {kind:#x}: length {length} is wrong")
        yield kind, data[at + 8:at + length - 4], order
        at += length


def read(path):
    data = path.read_bytes()
    packets, resolutions, received, dropped = [], [], None, None
    for kind, body, order in blocks(data):
        if kind == INTERFACE:
            if struct.unpack_from(order + "H", body)[0] != 1:
                raise ValueError("an interface that is not of Ethernet")
            resolutions.append(10.0 ** -options(body[8:], order).get(TIME_RESOLUTION, b"\x06")[0])
        elif kind == PACKET:
            interface, high, low, captured, length = struct.unpack_from(order + "IIIII", body)
            found = options(body[20 + (captured + 3) // 4 * 4:], order)
            packets.append(Packet(len(packets) + 1, (high << 32 | low) * resolutions[interface], body[20:20 + captured], length,
                                  found.get(COMMENT, b"").decode(), struct.unpack(order + "I", found[FLAGS])[0] & 3))
        elif kind == STATISTICS:
            found = options(body[12:], order)
            received = struct.unpack(order + "Q", found[RECEIVED])[0]
            dropped = struct.unpack(order + "Q", found[DROPPED])[0]
    return File(packets, received, dropped)
