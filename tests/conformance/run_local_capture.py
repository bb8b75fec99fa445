#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's programs on one host under `verbena capture` and checks the file: every frame must be correct to the last
checksum, PSNs must have no gaps, each packet must name its owner, and tshark must dissect all of it.

    run_local_capture.py --build build/release [--keep DIR]
"""

import collections
import os
import pathlib
import re
import shutil
import struct
import tempfile
import time

import dissection
import harness
import matrix
import pcapng
import rocev2
from run_capture import ACKNOWLEDGE, RC_ATOMIC, RC_READ, RC_SEND, RC_WRITE, UD_SEND

UC_SEND = {0x20: "UC SEND First", 0x22: "UC SEND Last"}
EXPECTED = RC_SEND | RC_WRITE | RC_READ | RC_ATOMIC | ACKNOWLEDGE | UD_SEND | UC_SEND
COMMENT = re.compile(r"(?P<program>\S+) \(pid (?P<pid>\d+)\), QP (?P<source>0x[0-9a-f]{6}) -> "
                     r"\S+ \(pid \d+\), QP (?P<destination>0x[0-9a-f]{6})"
                     r"(?P<own>; carried out by the initiator)?$")
RESPONSES = {0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12}
READ_REQUEST = 0x0C
PSN_COUNT = 1 << 24
MAX_WAIT = 0.1  # maximum seconds for which a packet may be late because its sender waited for a processor
ATTEMPTS = 12  # a capture may not keep up while the machine is busy


def cases(gid):
    few = ("-n", "30")
    return [
        matrix.pingpong("ibv_rc_pingpong", "-s", "100000", "-n", "10", gid=gid),  # a message fits into the rings
        matrix.pingpong("ibv_uc_pingpong", "-s", "3000", *few, gid=gid),
        matrix.pingpong("ibv_ud_pingpong", "-s", "1021", *few, gid=gid),
        matrix.rate("ib_send_bw", "-s", "16384", *few, gid=gid),
        matrix.rate("ib_send_bw", "-s", "1001", *few, gid=gid),
        matrix.rate("ib_write_bw", "-s", "10000", "-m", "1024", *few, gid=gid),
        matrix.delay("ib_write_lat", "-s", "99", *few, gid=gid),
        matrix.rate("ib_read_bw", "-s", "20000", *few, gid=gid),
        matrix.delay("ib_read_lat", "-s", "5000", *few, gid=gid),
        matrix.rate("ib_read_bw", "-s", "64", *few, gid=gid),
        matrix.delay("ib_atomic_lat", *few, gid=gid),
        matrix.delay("ib_atomic_lat", "-A", "CMP_AND_SWAP", *few, gid=gid),
        matrix.delay("ib_send_lat", *few, gid=gid),
    ]


class LocalCapture:
    """A `verbena capture` that runs as the user of the programs."""

    def __init__(self, host, path, *options):
        self.path = path
        self._process = host.verbena("capture", *options, path)
        if not harness.poll_until(lambda: "capturing into" in self._process.output or not self._process.running(), 10):
            raise RuntimeError(f"verbena capture does not start: {self._process.output}")

    def end(self):
        """Ends the capture: (exit status, packets written, packets left out), as it printed."""
        self._process.kill(2)
        return self.result()

    def result(self):
        status = self._process.wait(20)
        output = self._process.output
        self._process.kill()
        counts = re.search(r"(\d+) packets written, (\d+) left out", output)
        if counts is None:
            raise RuntimeError(f"verbena capture does not say how many packets it wrote: {output}")
        return status, int(counts[1]), int(counts[2])


def ones_complement(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum_complaint(packet):
    """A complaint about the checksums of an IP packet, or None."""
    header = rocev2.ip_header_length(packet)
    if packet[0] >> 4 == 4:
        if ones_complement(packet[:header]) != 0xFFFF:
            return "IP checksum"
        addresses = packet[12:20]
    else:
        addresses = packet[8:40]
    udp = packet[header:]
    if ones_complement(addresses + struct.pack(">IBBH", len(udp), 0, 0, 17) + udp) != 0xFFFF:
        return "UDP checksum"
    return None


def frame_complaint(entry):
    """A complaint about a single frame, or None."""
    packet = rocev2.packet_of(entry.frame)
    if packet is None or not rocev2.is_roce(packet):
        return "no RoCEv2"
    if entry.length != len(entry.frame) or len(packet) + 14 != len(entry.frame):
        return f"{len(entry.frame)} bytes of {entry.length}, and IP has {len(packet)}"
    try:
        found, computed = rocev2.icrc(packet)
    except rocev2.NotRoce as error:
        return str(error)
    if found != computed:
        return f"ICRC {found:08x}, computed {computed:08x}"
    return checksum_complaint(packet)


class Flow:
    """The requests from one queue pair to another, or its responses."""

    def __init__(self):
        self.expected = None
        self.gaps = []
        self.steps = 0

    def see(self, psn, count, number):
        if self.expected is not None:
            ahead = (psn - self.expected + PSN_COUNT // 2) % PSN_COUNT - PSN_COUNT // 2
            if ahead > 0:
                self.gaps.append(f"packet {number}: PSN {psn:#08x} where {self.expected:#08x} follows")
            elif ahead < 0:  # a retransmission
                return
        self.expected = (psn + count) % PSN_COUNT
        self.steps += count


def judge(path, program, complaints, written, left_out):
    """Checks a capture file. Returns the number of packets by opcode, and the number of packets of operations that initiators
    carried out themselves."""
    file = pcapng.read(path)
    seen, own = collections.Counter(), 0
    flows = collections.defaultdict(Flow)
    mtus = collections.defaultdict(lambda: 1 << 31)  # path MTUs, by the flow of responses
    parsed, senders = [], set()
    for entry in file.packets:
        wrong = frame_complaint(entry)
        said = COMMENT.match(entry.comment)
        if wrong is None and said is None:
            wrong = f"comment '{entry.comment}'"
        if wrong is None:
            bth = rocev2.packet_of(entry.frame)
            bth = bth[rocev2.ip_header_length(bth) + 8:]
            if struct.unpack(">I", b"\0" + bth[5:8])[0] != int(said["destination"], 16):
                wrong = "the comment names another queue pair"
        if wrong:
            complaints.append(f"{path.name} packet {entry.number}: {wrong}")
            continue
        seen[bth[0]] += 1
        senders.add(said["program"])
        if said["own"]:
            own += 1
            continue
        flow = (int(said["source"], 16), int(said["destination"], 16))
        parsed.append((entry, bth, flow))
        if bth[0] == 0x0D:  # the first of several responses has the length of the path MTU
            mtus[flow] = len(bth) - 12 - 4 - 4
    for entry, bth, (source, destination) in parsed:
        opcode, psn = bth[0], struct.unpack(">I", bth[8:12])[0] & 0xFFFFFF
        if opcode >= 0x60 or opcode == 0x11:  # datagrams have their own PSNs; an acknowledgement covers several
            continue
        count = 1
        if opcode == READ_REQUEST:
            length = struct.unpack(">I", bth[24:28])[0]
            count = max(1, -(-length // mtus[(destination, source)]))
        flows[source, destination, opcode in RESPONSES].see(psn, count, entry.number)
    for (source, destination, answers), flow in flows.items():
        # Check requests only: among responses, only those of READs and atomics were recorded, so their PSNs have gaps.
        if not answers and not left_out:
            complaints += [f"{path.name}: {source:#08x} -> {destination:#08x}: {gap}" for gap in flow.gaps[:3]]
    # A sender may be interrupted between reading the clock and recording the packet. Then the packet is late by as long as the
    # sender waits for a processor. On a busy machine this happens often and is no error.
    late = [before.seconds - after.seconds for before, after in zip(file.packets, file.packets[1:])
            if after.seconds < before.seconds]
    if late and (max(late) > MAX_WAIT or len(late) > len(file.packets) // 4):
        complaints.append(f"{path.name}: {len(late)} packets are older than the one before them, by up to {max(late):.6f} s")
    if file.packets and abs(file.packets[-1].seconds - time.time()) > 3600:
        complaints.append(f"{path.name}: the last packet is of {file.packets[-1].seconds}")
    if len(file.packets) != written or file.dropped != left_out or file.received != written + left_out:
        complaints.append(f"{path.name}: {len(file.packets)} packets, statistics {file.received} and {file.dropped}; the command "
                          f"says {written} and {left_out}")
    if senders != {program}:
        complaints.append(f"{path.name}: packets of {senders}, not of {program}")
    if shutil.which("tshark"):
        frames, malformed = dissection.check(path)
        if frames != len(file.packets):
            complaints.append(f"{path.name}: tshark sees {frames} of {len(file.packets)} packets")
        complaints += malformed[:5]
    print(f"{path.name}: {len(file.packets)} packets of {len(flows)} flows, {own} carried out by initiators", flush=True)
    return seen, own


def run_case(host, gid, case, complaints):
    option = "-g" if "pingpong" in case.program else "-x"
    gid_options = [option, host.gid_index(getattr(host, gid))]
    result = harness.pair(host, host, case.command(), seconds=case.seconds, server_options=gid_options,
                          client_options=gid_options)
    complaint = case.complaint(result)
    if complaint:
        complaints.append(f"{case.name}: {complaint}\n{result.report()}")


def capture_case(host, folder, gid, case, number, complaints):
    """Captures one case. Nothing may be left out of so few packets, unless the machine is too busy; so it tries several times."""
    for attempt in range(ATTEMPTS):
        capture = LocalCapture(host, folder / f"{gid}-{number}-{attempt}.pcapng")
        run_case(host, gid, case, complaints)
        status, written, left_out = capture.end()
        if status != 0:
            complaints.append(f"{gid}: verbena capture ends with status {status}")
        # Packets sent before the two processes have a channel go by UDP; for a short program that may be all of them.
        if written and not left_out:
            return judge(capture.path, case.program, complaints, written, left_out)
        print(f"{capture.path.name}: {left_out} packets of {written + left_out} left out: once more", flush=True)
    complaints.append(f"{case.name}: packets are left out, or all go by UDP, each time")
    return collections.Counter(), 0


def judge_all(host, folder, complaints):
    """Captures and checks all cases, over IPv4 and IPv6."""
    seen, own = collections.Counter(), 0
    for gid in ("ipv4", "ipv6"):
        for number, case in enumerate(cases(gid)):
            of_these, own_of_these = capture_case(host, folder, gid, case, number, complaints)
            seen += of_these
            own += own_of_these
    for opcode, name in EXPECTED.items():
        if not seen[opcode]:
            complaints.append(f"no packet of opcode {opcode:#04x} ({name}) was captured")
    return seen, own


def judge_choices(host, folder, complaints):
    """Checks --snaplen and --count, and that a program is unaffected when its capture is killed."""
    gid = ["-x", host.gid_index(host.ipv4)]
    case = matrix.rate("ib_send_bw", "-s", "4000", "-n", "100")

    def run():
        result = harness.pair(host, host, case.command(), seconds=case.seconds, server_options=gid, client_options=gid)
        if complaint := case.complaint(result):
            complaints.append(f"{case.name}: {complaint}\n{result.report()}")

    capture = LocalCapture(host, folder / "short.pcapng", "--snaplen", "80", "--count", "50")
    run()
    status, written, _ = capture.result()
    packets = pcapng.read(capture.path).packets
    if status != 0 or written != 50 or len(packets) != 50 or max(len(one.frame) for one in packets) != 80:
        complaints.append(f"--snaplen 80 --count 50: status {status}, {len(packets)} packets")
    if max(one.length for one in packets) < 4000:
        complaints.append("--snaplen 80: the packets' own length is lost")

    doomed = LocalCapture(host, folder / "killed.pcapng")
    long_one = matrix.rate("ib_send_bw", "-s", "4000", "-D", "3")
    port = host.hosts.port()
    words = ["run", *long_one.command(), "-p", port, *gid]
    server = host.verbena(*words)
    harness.poll_until(lambda: server.listens(port), 20)
    client = host.verbena(*words, host.ipv4)
    harness.poll_until(lambda: doomed.path.stat().st_size > 10_000_000, 20)
    doomed._process.kill()
    if client.wait(60) != 0 or server.wait(20) != 0:
        complaints.append(f"a program ends badly when its capture is killed:\n{client.output}{server.output}")
    if doomed.path.stat().st_size < 10_000_000:
        complaints.append("the capture to be killed had captured nothing")
    capture = LocalCapture(host, folder / "after.pcapng")
    run()
    if capture.end()[1] < 100:
        complaints.append("the next capture after one that was killed sees nothing")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--keep", help="a folder to leave the captures in")
    options = harness.begin(parser, "ip", "setpriv", "ib_write_bw", "ibv_rc_pingpong")

    complaints = []
    with tempfile.TemporaryDirectory(prefix="verbena-capture-") as temporary:
        folder = pathlib.Path(options.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o777)  # the capture runs as an ordinary user
        with harness.Hosts(options.build) as hosts:
            host = hosts.one()
            seen, own = judge_all(host, folder, complaints)
            judge_choices(host, folder, complaints)
    for complaint in complaints:
        print(f"\n=== {complaint}")
    print(f"\n{sum(seen.values())} packets of {len(seen)} opcodes judged ({own} carried out by initiators), "
          f"{len(complaints)} complaints")
    raise SystemExit(1 if complaints else 0)


if __name__ == "__main__":
    main()
