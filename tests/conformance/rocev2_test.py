#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the capture checkers, on packets of the Linux kernel and on damaged copies of them."""

import pathlib
import shutil
import struct
import tempfile
import unittest

import dissection
import rocev2

# RC SEND ONLY with two bytes of padding and with none, ACKNOWLEDGE, RDMA WRITE ONLY over IPv6, as Linux 6.1's rdma_rxe sent them.
KERNEL_FRAMES = [bytes.fromhex(text) for text in (
    "52540077000152540077000208004500002c520040004011d4100a4d000c0a4d000bca2912b7001800000400ffff0000003380fffff004f15b97",
    "5254007700025254007700010800450000307d5140004011a8bb0a4d000b0a4d000cca2912b7001c00001100ffff0000003300fffff01f000001"
    "cebb4328",
    "52540077000152540077000286dd6000000000281140fd77000000000000000000000000000cfd77000000000000000000000000000bcf8112b7"
    "002800000a00ffff0000003f801234560000000037aa5000000030ea00000000785825e1",
)]
CAPTURES = sorted((pathlib.Path(__file__).resolve().parents[1] / "wire" / "roce" / "captures").glob("*.pcap"))


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


class InvariantCrc(unittest.TestCase):
    def test_kernel_packets_are_exact(self):
        for frame in KERNEL_FRAMES:
            found, computed = rocev2.icrc(rocev2.packet_of(frame))
            self.assertEqual(found, computed)

    def test_every_flipped_bit_that_is_covered_is_found(self):
        for frame in KERNEL_FRAMES:
            packet = rocev2.packet_of(frame)
            header = rocev2.ip_header_length(packet)
            ipv4 = packet[0] >> 4 == 4
            # Fields that routers may change, and the length fields, with which icrc() finds the packet's end.
            free = {1, 8, 10, 11, 0, 2, 3} if ipv4 else {0, 1, 2, 3, 4, 5, 7}
            free |= {header + 4, header + 5, header + 6, header + 7, header + 12}
            for position in set(range(len(packet))) - free:
                for bit in range(8):
                    damaged = bytearray(packet)
                    damaged[position] ^= 1 << bit
                    found, computed = rocev2.icrc(bytes(damaged))
                    self.assertNotEqual(found, computed, f"byte {position} bit {bit}")

    def test_wrong_lengths_are_found(self):
        packet = rocev2.packet_of(KERNEL_FRAMES[0])
        with self.assertRaises(rocev2.NotRoce):
            rocev2.icrc(packet[:-1])

    def test_check_of_a_file_finds_the_damaged_packet(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.pcap"
            damaged = KERNEL_FRAMES[0][:-1] + b"\0"
            write_pcap(path, [KERNEL_FRAMES[0], damaged])
            seen, wrong = rocev2.check(path)
            self.assertEqual(seen, {4: 2})
            self.assertEqual(len(wrong), 1)
            self.assertIn("packet 2", wrong[0])

    def test_all_kernel_captures_are_exact(self):
        packets = 0
        for path in CAPTURES:
            seen, wrong = rocev2.check(path)
            self.assertEqual(wrong, [])
            packets += sum(seen.values())
        self.assertGreater(packets, 0)


@unittest.skipUnless(shutil.which("tshark"), "no tshark here")
class Dissection(unittest.TestCase):
    def check(self, *frames):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.pcap"
            write_pcap(path, frames)
            return dissection.check(path)

    def test_kernel_packets_are_dissected(self):
        self.assertEqual(self.check(*KERNEL_FRAMES), (3, []))

    def test_a_packet_cut_in_its_header_is_malformed(self):
        # A WRITE ONLY whose RETH is cut off after four bytes, with adjusted lengths.
        write = KERNEL_FRAMES[2]
        cut = bytearray(write[:14 + 40 + 8 + 12 + 4])
        struct.pack_into(">H", cut, 14 + 4, len(cut) - 54)
        struct.pack_into(">H", cut, 14 + 40 + 4, len(cut) - 54)
        frames, wrong = self.check(bytes(cut))
        self.assertEqual(frames, 1)
        self.assertEqual(len(wrong), 1, wrong)

    def test_another_protocol_is_found(self):
        frame = bytearray(KERNEL_FRAMES[0])
        struct.pack_into(">H", frame, 36, 4790)
        _, wrong = self.check(bytes(frame))
        self.assertEqual(len(wrong), 1)
        self.assertIn("not dissected as RoCEv2", wrong[0])

    def test_all_kernel_captures_are_well_formed(self):
        self.assertTrue(CAPTURES)
        for path in CAPTURES:
            _, wrong = dissection.check(path)
            self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
