#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much a hostile user costs another user of root's agent: the times of `verbena status`, of a greeting and of
connecting by librdmacm, each compared with an idle machine; and the growth of the agent's memory.

    run_neighbours.py --build build/release
"""

import contextlib
import math
import pathlib
import select
import statistics
import subprocess
import sys
import time

import bad_neighbour
import harness
from run_users import as_user

HOSTILE, OTHER = 65534, 65533
LIMIT = ("computes",)  # only shows how much longer everything takes beside one busy process
KINDS = (LIMIT, ("status",), ("lists",), ("idle",), ("deaf",), ("greets",), ("status", "lists", "deaf", "greets"))
MAX_STATUS = 0.1  # maximum seconds, at the 99th percentile
MAX_TIMES = 3  # maximum ratio to the time without the neighbour
MAX_MEMORY = 64 << 20
GREETER = """
import os, sys, time
sys.path.insert(0, {folder!r})
import bad_neighbour
for _ in range({count}):
    begun = time.perf_counter()
    session = bad_neighbour.Session()
    print(time.perf_counter() - begun)
    session.socket.close()
    for file in session.files:
        os.close(file)
"""


def percentile(times, part):
    return sorted(times)[math.ceil(len(times) * part) - 1]


def memory_of(pid):
    """(anonymous memory of the agent, all shared memory of the machine, nearly all of which is the agent's here), in bytes."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    own = sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss_Anon"))
    shared = 0
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("Shmem:"):
            shared = int(line.split()[1]) << 10
    return own, shared


class Measured:
    """The times that a user measures, in seconds."""

    def __init__(self, host, quick):
        self.host = host
        count = 20 if quick else 100
        self.status = self._quietest(count)
        self.greeting = self._greetings(200)
        self.connecting = [self._connect() for _ in range(3 if quick else 9)]

    def _as_other(self, *command):
        """The output of a command; None if it fails."""
        result = subprocess.run(self.host.enter() + as_user(OTHER) + [str(word) for word in command], check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, encoding="utf-8")
        return result.stdout if result.returncode == 0 else None

    def _quietest(self, count):
        """The best of up to three series: starting a program may take long on a busy machine, whatever the agent does."""
        series = []
        while len(series) < 3 and (not series or min(percentile(times, .99) for times in series) > MAX_STATUS):
            series.append([self._status() for _ in range(count)])
        return min(series, key=lambda times: percentile(times, .99))

    def _status(self):
        begun = time.perf_counter()
        said = self._as_other(self.host.hosts.build.program, "status")
        return time.perf_counter() - begun if said is not None else math.inf

    def _greetings(self, count):
        folder = str(pathlib.Path(bad_neighbour.__file__).parent)
        said = self._as_other(sys.executable, "-c", GREETER.format(folder=folder, count=count))
        return [float(line) for line in said.split()] if said is not None else [math.inf]

    def _connect(self):
        """Seconds for 40 connections by cmtime, including its start."""
        port = self.host.hosts.port()
        serving = self.host.verbena("run", "cmtime", "-p", port, "-c", "40", user=as_user(OTHER))
        harness.poll_until(lambda: "verbena" in serving.output or not serving.running(), 0.3)
        begun = time.perf_counter()
        status, output = self.host.run("cmtime", "-s", self.host.ipv4, "-p", port, "-c", "40", seconds=60, user=as_user(OTHER))
        took = time.perf_counter() - begun
        serving.kill()
        if status != 0:
            print(f"connecting fails:\n{output}\n{serving.output}")
        return took if status == 0 else math.inf

    def __str__(self):
        return (f"status {statistics.median(self.status) * 1e3:.1f} ms, p99 {percentile(self.status, .99) * 1e3:.1f} ms; "
                f"greeting {statistics.median(self.greeting) * 1e3:.2f} ms, p99 {percentile(self.greeting, .99) * 1e3:.2f} ms; "
                f"40 connections {statistics.median(self.connecting) * 1e3:.0f} ms")


def line_of(process, seconds):
    if not select.select([process.stdout], [], [], seconds)[0]:
        raise RuntimeError(f"the neighbour printed nothing within {seconds} s")
    return process.stdout.readline().strip()


@contextlib.contextmanager
def neighbour(host, kinds, agent):
    """Runs a hostile neighbour. Yields the agent's memory when the neighbour had its share and had not attacked yet."""
    script = pathlib.Path(bad_neighbour.__file__)
    with subprocess.Popen(host.enter() + as_user(HOSTILE) + [sys.executable, str(script), *kinds], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            line_of(process, 60)
            before = memory_of(agent)
            process.stdin.write("\n")
            process.stdin.flush()
            line_of(process, 60)
            yield before
        finally:
            process.kill()


def judge_neighbour(judge, host, agent, kinds, options):
    what = " and ".join(kinds)
    alone = Measured(host, options.quick)
    print(f"alone: {alone}")
    with neighbour(host, kinds, agent) as before:
        beside = Measured(host, options.quick)
        after = memory_of(agent)
    print(f"{what}: {beside}")
    ratios = {name: statistics.median(getattr(beside, name)) / statistics.median(getattr(alone, name)) for name in ("greeting", "connecting")}
    if tuple(kinds) == LIMIT:
        return print(f"{what}: {ratios}")
    p99 = percentile(beside.status, .99)
    judge.say(f"{what}: verbena status within {MAX_STATUS * 1e3:.0f} ms", None if p99 <= MAX_STATUS else f"p99 {p99 * 1e3:.1f} ms")
    for name, times in ratios.items():
        judge.say(f"{what}: {name} at most {MAX_TIMES} times as long as alone ({times:.1f})",
                  None if times <= MAX_TIMES else f"{times:.1f} times")
    more = sum(after) - sum(before)
    judge.say(f"{what}: at most {MAX_MEMORY >> 20} MiB more ({more / 2**20:.1f})", None if more <= MAX_MEMORY else f"{more} bytes")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="measure fewer times")
    parser.add_argument("--kinds", nargs="+", choices=bad_neighbour.KINDS, help="run a single neighbour with these attacks")
    options = harness.begin(parser, "ip", "setpriv", "cmtime")

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        host.start_agent()
        agent = host.agents()[0]
        for kinds in [options.kinds] if options.kinds else KINDS:
            judge_neighbour(judge, host, agent, kinds, options)
    judge.exit()


if __name__ == "__main__":
    main()
