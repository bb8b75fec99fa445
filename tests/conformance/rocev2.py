# SPDX-License-Identifier: Apache-2.0
"""Reads RoCEv2 from a capture without any code of Verbena, and computes the invariant CRC independently."""

import struct
import zlib

PORT = 4791
ETHERNET, IPV4, IPV6, VLAN = 1, 0x0800, 0x86DD, 0x8100


class NotRoce(ValueError):
    """Raised for a packet that cannot be RoCEv2."""


def frames(path):
    """The frames of a pcap file written by tcpdump on an Ethernet-like device."""
    with open(path, "rb") as file:
        magic = file.read(4)
        order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">",
                 b"\xa1\xb2\x3c\x4d": ">"}.get(magic)
        if order is None:
            raise ValueError(f"{path} is no pcap file")
        link_type = struct.unpack(order + "HHiIII", file.read(20))[5]
        if link_type != ETHERNET:
            raise ValueError(f"{path}: link type {link_type}, not Ethernet")
        while header := file.read(16):
            captured, length = struct.unpack(order + "IIII", header)[2:]
            if captured != length:
                raise ValueError(f"{path}: a frame was cut at {captured} of {length} bytes")
            yield file.read(captured)


def packet_of(frame):
    """The IP packet in an Ethernet frame, without the padding of short frames; None if it is not IP."""
    kind, start = struct.unpack_from(">H", frame, 12)[0], 14
    if kind == VLAN:
        kind, start = struct.unpack_from(">H", frame, 16)[0], 18
    if kind == IPV4:
        return frame[start:start + struct.unpack_from(">H", frame, start + 2)[0]]
    if kind == IPV6:
        return frame[start:start + 40 + struct.unpack_from(">H", frame, start + 4)[0]]
    return None


def packets(path):
    """The RoCEv2 packets in a capture."""
    for frame in frames(path):
        packet = packet_of(frame)
        if packet is not None and is_roce(packet):
            yield packet


def identification(packet):
    """The IPv4 identification; 0 for IPv6, which has none."""
    return struct.unpack_from(">H", packet, 4)[0] if packet[0] >> 4 == 4 else 0


def ip_header_length(packet):
    return (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40


def is_roce(packet):
    """Whether this is UDP to RoCEv2's port."""
    header = ip_header_length(packet)
    protocol = packet[9] if packet[0] >> 4 == 4 else packet[6]
    return protocol == 17 and struct.unpack_from(">H", packet, header + 2)[0] == PORT


def icrc(packet):
    """(ICRC found, ICRC computed) of a RoCEv2 packet: IBTA volume 1, annex A17, 17.3.4."""
    header = ip_header_length(packet)
    udp_length = struct.unpack_from(">H", packet, header + 4)[0]
    if header + udp_length != len(packet):
        raise NotRoce(f"UDP says {udp_length} bytes, IP carries {len(packet) - header}")
    if udp_length < 8 + 12 + 4:
        raise NotRoce(f"{udp_length} bytes of UDP hold no BTH")
    masked = bytearray(packet)
    if packet[0] >> 4 == 4:
        masked[1] = masked[8] = 0xFF            # type of service, time to live
        masked[10:12] = b"\xff\xff"             # header checksum
    else:
        masked[0] |= 0x0F                       # traffic class, flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF                        # hop limit
    masked[header + 6:header + 8] = b"\xff\xff"  # UDP checksum
    masked[header + 8 + 4] = 0xFF               # BTH: congestion bits and reserved
    computed = zlib.crc32(b"\xff" * 8 + masked[:-4])
    return struct.unpack_from("<I", packet, len(packet) - 4)[0], computed


def opcode(packet):
    return packet[ip_header_length(packet) + 8]


def check(path):
    """(opcodes seen, complaints) over all RoCEv2 packets in a capture."""
    seen, wrong = {}, []
    for number, packet in enumerate(packets(path), 1):
        try:
            found, computed = icrc(packet)
        except NotRoce as error:
            wrong.append(f"{path} packet {number}: {error}")
            continue
        seen[opcode(packet)] = seen.get(opcode(packet), 0) + 1
        if found != computed:
            wrong.append(f"{path} packet {number}: opcode {opcode(packet):#04x}, {len(packet)} bytes: ICRC {found:08x}, "
                         f"computed {computed:08x}")
    return seen, wrong
