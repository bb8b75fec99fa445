#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures the packets of Debian's programs between two hosts over Verbena and checks them twice: tshark must dissect every
packet as well-formed RoCEv2, and an independent computation must confirm every invariant CRC. Segments that the kernel cuts
from one large send are captured one by one, as they leave.

    run_capture.py --build build/release [--keep DIR]
"""

import pathlib
import re
import sys
import tempfile

import dissection
import harness
import matrix
import rocev2

# Opcodes (IBTA volume 1, table 38) by the programs that cause them. Every opcode must be captured, or the check would miss it.
RC_SEND = {0x00: "SEND First", 0x01: "SEND Middle", 0x02: "SEND Last", 0x04: "SEND Only"}
RC_WRITE = {0x06: "RDMA WRITE First", 0x07: "RDMA WRITE Middle", 0x08: "RDMA WRITE Last", 0x0A: "RDMA WRITE Only"}
RC_READ = {0x0C: "RDMA READ Request", 0x0D: "RDMA READ response First", 0x0E: "RDMA READ response Middle",
           0x0F: "RDMA READ response Last", 0x10: "RDMA READ response Only"}
RC_ATOMIC = {0x12: "ATOMIC Acknowledge", 0x13: "CmpSwap", 0x14: "FetchAdd"}
ACKNOWLEDGE = {0x11: "Acknowledge"}
UD_SEND = {0x64: "UD SEND Only"}
EXPECTED = RC_SEND | RC_WRITE | RC_READ | RC_ATOMIC | ACKNOWLEDGE | UD_SEND


def cases(gid, mtu):
    few = ("-n", "30")
    return [
        matrix.pingpong("ibv_rc_pingpong", "-s", "100000", *few, gid=gid),
        matrix.pingpong("ibv_ud_pingpong", "-s", "1021", *few, gid=gid),
        matrix.rate("ib_send_bw", *few, gid=gid),
        matrix.rate("ib_send_bw", "-s", "1001", *few, gid=gid),
        matrix.rate("ib_write_bw", *few, "-b", gid=gid),
        matrix.rate("ib_write_bw", "-s", "999", "-l", "8", "-n", "32", gid=gid),
        matrix.rate("ib_write_bw", "-m", "256", *few, gid=gid),
        matrix.rate("ib_read_bw", *few, gid=gid),
        matrix.delay("ib_read_lat", *few, gid=gid),
        matrix.rate("ib_atomic_bw", *few, gid=gid),
        matrix.delay("ib_atomic_lat", "-A", "CMP_AND_SWAP", *few, gid=gid),
        matrix.delay("ib_send_lat", *few, gid=gid),
        matrix.delay("ib_write_lat", "-s", "1048576", "-n", "5", gid=gid),
    ]


class Capture:
    """A tcpdump of the packets that one host sends."""

    def __init__(self, host, path):
        self.path = path
        # With segmentation offload, a large send would be captured before it is cut into segments, so the device must not offer
        # it.
        harness.sh(*host.enter(), "ethtool", "-K", host.netdev, "tx-udp-segmentation", "off")
        self._tcpdump = host.start(
            ["tcpdump", "--immediate-mode", "-i", host.netdev, "-Q", "out", "-s", "9500", "-B", "65536", "-U", "-w", path,
             "-Z", "root", "udp port 4791"], user=[])
        if not harness.poll_until(lambda: "listening on" in self._tcpdump.output or not self._tcpdump.running(), 10):
            raise RuntimeError(f"tcpdump does not start: {self._tcpdump.output}")

    def end(self):
        """(captured, seen, dropped): packets that this host sent; packets seen in both directions; packets lost by tcpdump."""
        self._tcpdump.kill(2)
        self._tcpdump.wait(10)
        counts = [re.search(rf"^(\d+) packets? {what}", self._tcpdump.output, re.MULTILINE)
                  for what in ("captured", "received by filter", "dropped by kernel")]
        if None in counts:
            raise RuntimeError(f"tcpdump does not say how many packets it took: {self._tcpdump.output}")
        return [int(count[1]) for count in counts]


def run_traffic(hosts, gid, mtu, folder, complaints):
    server, client = hosts.two(mtu)
    captures = [Capture(host, folder / f"{gid}-{mtu}-{side}.pcap")
                for side, host in (("server", server), ("client", client))]
    for case in cases(gid, mtu):
        option = "-g" if "pingpong" in case.program else "-x"
        result = harness.pair(server, client, case.command(), seconds=case.seconds,
                              server_options=[option, server.gid_index(getattr(server, gid))],
                              client_options=[option, client.gid_index(getattr(client, gid))])
        complaint = case.complaint(result)
        if complaint:
            complaints.append(f"{case.name}: {complaint}\n{result.report()}")
    # Stop the agents first: they send announcements every few seconds, even after the first capture has ended.
    for host in (server, client):
        host.end_agents()
    counts = [capture.end() for capture in captures]
    sent = sum(captured for captured, _, _ in counts)
    for capture, (_, seen, dropped) in zip(captures, counts):
        if dropped or seen != sent:  # a packet that was not captured was not checked
            complaints.append(f"{capture.path.name}: {seen} packets passed, {dropped} were dropped, and {sent} captured")
    return [capture.path for capture in captures]


def judge(paths, complaints):
    """The number of packets by opcode."""
    seen = {}
    for path in paths:
        opcodes, wrong = rocev2.check(path)
        # The k-th segment of a large send has IPv4 identification k. Without such a packet, segmentation was not tested.
        if path.name.startswith("ipv4") and not any(map(rocev2.identification, rocev2.packets(path))):
            complaints.append(f"{path.name}: no packet was cut from a larger send")
        frames, malformed = dissection.check(path)
        complaints += wrong[:5] + malformed[:5]
        for opcode, count in opcodes.items():
            seen[opcode] = seen.get(opcode, 0) + count
        print(f"{path.name}: {frames} frames, {len(wrong)} with a wrong ICRC, {len(malformed)} malformed", flush=True)
    return seen


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--keep", help="a folder to leave the captures in")
    options = harness.begin(parser, "tcpdump", "tshark", "ethtool", "ip", "ib_write_bw", "ibv_rc_pingpong")

    complaints, seen = [], {}
    with tempfile.TemporaryDirectory(prefix="verbena-capture-") as temporary:
        folder = pathlib.Path(options.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for gid, mtu in (("ipv4", 1500), ("ipv6", 1500), ("ipv4", 9000)):
            with harness.Hosts(options.build) as hosts:
                paths = run_traffic(hosts, gid, mtu, folder, complaints)
            for opcode, count in judge(paths, complaints).items():
                seen[opcode] = seen.get(opcode, 0) + count
    for opcode, name in EXPECTED.items():
        if not seen.get(opcode):
            complaints.append(f"no packet of opcode {opcode:#04x} ({name}) was captured")
    for complaint in complaints:
        print(f"\n=== {complaint}")
    print(f"\n{sum(seen.values())} packets of {len(seen)} opcodes judged, {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
