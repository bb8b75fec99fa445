#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how soon a target answers if its program does not poll: it calls no verb, or sleeps until an event.

    sleeping_target.py --build build/release [--rounds 3] [--case ib_read_lat ...]

The two ends are namespaces joined by a veth pair. Each latency is compared with that of two busy-polling programs over bare UDP
sockets, measured in the same round, because load on a shared machine disturbs both. The ratio is that of the medians. Programs
that are not installed are left out. The last line is the processor use of an idle server.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
import wire_speed  # noqa: E402

NUMBER = wire_speed.NUMBER
SECONDS = 30
COPIED_BYTES = 1 << 28
QPERF_PORT = 19765


def number_in(pattern, result):
    found = re.search(pattern, result.client.output)
    if not found:
        raise RuntimeError(result.report())
    return found


def perftest_latency(pair, *command):
    """The mean latency that perftest prints: a full round trip for READs and atomics, half of one otherwise."""
    return wire_speed.perftest(pair, False, [*command, "-n", "5000"])[5]


def served(server, client, port, serve, call, seconds=SECONDS):
    serving = server.verbena("run", *serve)
    if port:
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 10)
    else:
        time.sleep(1)  # the server listens for RDMA connections, which /proc/net/tcp does not show
    calling = client.verbena("run", *call)
    status = calling.wait(seconds)
    result = harness.Result(serving, calling, 0, status)
    for process in (serving, calling):
        process.kill()
    if status != 0:
        raise RuntimeError(result.report())
    return result


def fi_pingpong(pair):
    server, client = pair
    port = server.hosts.port()
    words = ["env", "FI_VERBS_IFACE=eth0", "fi_pingpong", "-p", "verbs;ofi_rxm", "-e", "rdm", "-I", "3000", "-S", "64"]
    result = served(server, client, port, [*words, "-B", port], [*words, "-P", port, server.ipv4])
    return float(number_in(rf"(?m)^64 .*?s\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s*$", result).group(2))


def qperf(pair, test):
    server, client = pair
    result = served(server, client, QPERF_PORT, ["qperf"], ["qperf", "-t", "2", "-uu", "-cm", "1", server.ipv4, test])
    found = number_in(rf"(latency|msg_rate)\s+=\s+{NUMBER}\s*(\S+)", result)
    scale = {"us": 1, "ms": 1e3, "ns": 1e-3, "K/sec": 1e3, "M/sec": 1e6, "/sec": 1}[found.group(3)]
    return float(found.group(2)) * scale


def rcopy(pair):
    """Gigabytes per second."""
    server, client = pair
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source = pathlib.Path(folder) / "source"
        source.write_bytes(bytes(COPIED_BYTES))
        pathlib.Path(folder).chmod(0o777)
        result = served(server, client, 0, ["rcopy"],
                        ["rcopy", source, f"{server.ipv4}:{folder}/copy"])
        return float(number_in(rf"{NUMBER} Gb/s", result).group(1)) / 8


def fio(pair):
    """MiB per second of RDMA READ, one block of 64 KiB at a time."""
    server, client = pair
    port = server.hosts.port()
    common = ["fio", "--name=job", "--ioengine=rdma", f"--port={port}", "--bs=64k", "--size=256m",
              "--output-format=terse"]
    result = served(server, client, 0, [*common, "--rw=read", "--iodepth=4"],
                    [*common, "--rw=write", "--verb=read", "--iodepth=1", f"--hostname={server.ipv4}"])
    line = number_in(r"(?m)^3;.*$", result).group(0)
    return float(line.split(";")[47]) / 1024  # fio counts the client's READs as writing


def resting_share(pair):
    """Processor use, in percent of one processor, of a server that has created its resources and has no client."""
    server, _ = pair
    port = server.hosts.port()
    resting = server.verbena("run", "ib_read_lat", "-d", "rxe_eth0", "-F", "-p", port)
    harness.poll_until(lambda: resting.listens(port) or not resting.running(), 10)
    def ticks():
        return sum(int(word) for word in pathlib.Path(f"/proc/{resting.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    before = ticks()
    time.sleep(3)
    used = ticks() - before
    resting.kill()
    return used / 3  # 1 tick is 10 ms, so ticks per second are percent


# name, program, unit, measurement, number of bare UDP half round trips to compare with (0: no comparison)
CASES = [
    ("READ, target calls no verb", "ib_read_lat", "us", lambda pair: perftest_latency(pair, "ib_read_lat", "-s", "8"), 2),
    ("atomic, target calls no verb", "ib_atomic_lat", "us", lambda pair: perftest_latency(pair, "ib_atomic_lat"), 2),
    ("SEND, half round trip, both poll", "ib_send_lat", "us", lambda pair: perftest_latency(pair, "ib_send_lat", "-s", "64"), 1),
    ("SEND, half round trip, both sleep", "ib_send_lat", "us",
     lambda pair: perftest_latency(pair, "ib_send_lat", "-s", "64", "-e"), 1),
    ("qperf rc_lat, both sleep", "qperf", "us", lambda pair: qperf(pair, "rc_lat"), 1),
    ("qperf rc_fetch_add_mr", "qperf", "/s", lambda pair: qperf(pair, "rc_fetch_add_mr"), 0),
    ("fi_pingpong, verbs;ofi_rxm", "fi_pingpong", "us", fi_pingpong, 1),
    ("rcopy", "rcopy", "GB/s", rcopy, 0),
    ("fio READ 64 KiB", "fio", "MiB/s", fio, 0),
    ("process at rest", "ib_read_lat", "% CPU", resting_share, 0),
]


def measure(name, unit, bare, ours, halves, rounds):
    pairs = [(bare() if halves else 0, ours()) for _ in range(rounds)]
    our_median = statistics.median(pair[1] for pair in pairs)
    line = f"{name:<36} {our_median:10.2f} {unit:<6}"
    if halves:
        limit = halves * statistics.median(pair[0] for pair in pairs)
        line += f" bare UDP, busy-polling {limit:8.2f} us  ratio {our_median / limit:.2f}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", help="measure cases whose name contains this word only; may be repeated")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ib_read_lat", "setpriv")
    with harness.Hosts(options.build) as hosts:
        pair = hosts.two(9000)
        for name, program, unit, ours, halves in CASES:
            wanted = not options.case or any(case in f"{name} {program}" for case in options.case)
            if not wanted or not shutil.which(program):
                continue
            try:
                measure(name, unit, lambda: wire_speed.raw_half_round_trip(options.build, False), lambda m=ours: m(pair),
                        halves, options.rounds)
            except RuntimeError as error:
                print(f"{name:<36} failed: {str(error).strip()[-900:]}", flush=True)


if __name__ == "__main__":
    main()
