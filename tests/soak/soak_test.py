#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes on two hosts use every operation with each other for a while, by shared memory and by wire, and verify every byte
and every completion. Meanwhile processes are killed and restarted, or stopped for a moment, and agents are killed.

    soak_test.py --build build/release --seconds 3600
    soak_test.py --build build/release --seconds 60 --seed 4711 --calm

Each RC connection is accompanied by a UC queue pair and by datagrams; messages that arrive on these ("loose") are verified
too. Memory windows are bound, and invalidated by the peer.

The test fails if something wrong arrives, if a connection is lost while both ends live, if traffic stops, or if anything is
left at the end: descriptors, slots, identifiers, agents. --calm kills nothing.
"""

import argparse
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness  # noqa: E402

PER_HOST = 2
# A killed peer is detected by retries on the wire, and at once through shared memory.
NOTICED_SECONDS = 60
STANDSTILL_SECONDS = 30
# Maximum descriptors of an idle process: librdmacm and the library keep some open until the process ends, for the device, the
# agent and other processes. A leak per connection or per peer would exceed this number by far.
MAX_DESCRIPTORS = 48
MAX_MAPPINGS = 120


class Peer:
    """One of the processes, including its restarts."""

    def __init__(self, soak, number, host, port):
        self.soak, self.number, self.host, self.port = soak, number, host, port
        self.lives = 0
        self.killed = []  # times of kills
        self.total = {}   # counts of its earlier processes
        self.process = None

    @property
    def address(self):
        return f"{self.host.ipv4}:{self.port}"

    def start(self):
        others = [other.address for other in self.soak.peers[:self.number]]
        seed = self.soak.options.seed * 1000 + self.number * 100 + self.lives
        self.lives += 1
        self.read_to = 0
        self.counts = {}
        self.moved = time.monotonic()
        self.process = self.host.verbena("run", self.soak.program, self.number, seed, self.address,
                                         self.soak.options.connections, *others)

    def lines(self):
        """The lines that it has printed since the last call."""
        whole = self.process.output[self.read_to:]
        whole = whole[:whole.rfind("\n") + 1]
        self.read_to += len(whole)
        return whole.splitlines()

    def kill(self):
        self.killed.append(time.monotonic())
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        for line in self.lines():
            self.soak.hear(self, line)
        self.process.kill()
        for name, value in self.counts.items():
            self.total[name] = self.total.get(name, 0) + value
        self.counts = {}

    def count(self, words):
        new = dict(zip(words[::2], map(int, words[1::2])))
        if new != self.counts:
            self.moved = time.monotonic()
        self.counts = new

    def counted(self, name):
        return self.total.get(name, 0) + self.counts.get(name, 0)


class Soak:
    def __init__(self, hosts, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.program = pathlib.Path(options.build).resolve() / "tests" / "soak_peer"
        self.hosts = hosts.two()
        self.peers = []
        self.lost = 0
        self.disturbances = {}
        self.said = {}
        for host in self.hosts:
            for _ in range(PER_HOST):
                self.peers.append(Peer(self, len(self.peers), host, hosts.port()))

    def fail(self, why):
        ends = "".join(f"--- process {peer.number}:\n{''.join(peer.process.output.splitlines(True)[-5:])}" for peer in self.peers)
        sys.exit(f"soak: {why}\n{ends}(seed {self.options.seed})")

    def hear(self, peer, line):
        word, *words = line.split()
        if word == "count":
            peer.count(words)
        elif word == "fault":
            self.fail(f"process {peer.number}: {line}")
        elif word == "lost":
            self.check_loss(peer, int(words[0]), int(words[1]), float(words[2]))
        else:
            self.said.setdefault(word, {})[peer.number] = words

    def check_loss(self, peer, other, status, at):
        """A connection may end only if the peer's process has ended."""
        self.lost += 1
        if not any(kill - 1 <= at <= kill + NOTICED_SECONDS for kill in self.peers[other].killed):
            self.fail(f"process {peer.number} has lost a connection to process {other} (status {status}), which lives")

    def listen(self):
        for peer in self.peers:
            is_running = peer.process.running()
            for line in peer.lines():
                self.hear(peer, line)
            if not is_running and peer.number not in self.said.get("end", {}):
                self.fail(f"process {peer.number} has ended: {peer.process.wait(0)}")

    def check_progress(self):
        for peer in self.peers:
            if time.monotonic() - peer.moved > STANDSTILL_SECONDS:
                self.fail(f"process {peer.number} has stood still for {STANDSTILL_SECONDS} seconds")

    def wait_for(self, word, seconds):
        def all_said():
            self.listen()
            return len(self.said.get(word, {})) == len(self.peers)
        if not harness.poll_until(all_said, seconds, 0.1):
            self.fail(f"not all say '{word}' within {seconds} seconds, only {sorted(self.said.get(word, {}))}")

    # ---- disturbances

    def disturb(self):
        what = self.random.choice([self.kill_one, self.kill_one, self.stop_one, self.kill_agent])
        self.disturbances[what.__name__] = self.disturbances.get(what.__name__, 0) + 1
        what()

    def kill_one(self):
        peer = self.random.choice(self.peers)
        peer.kill()
        peer.start()

    def stop_one(self):
        peer = self.random.choice(self.peers)
        os.kill(peer.process.pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 1.0))
        os.kill(peer.process.pid, signal.SIGCONT)

    def kill_agent(self):
        host = self.random.choice(self.hosts)
        for agent in host.agents():
            os.kill(agent, signal.SIGKILL)
        host.run("ibv_devinfo", "-l")  # starts the next agent

    # ---- the whole test

    def run(self):
        for peer in self.peers:
            peer.start()
        self.wait_for("ready", 30)
        began = time.monotonic()
        next_disturbance = began + 5
        while time.monotonic() - began < self.options.seconds:
            self.listen()
            self.check_progress()
            if not self.options.calm and time.monotonic() > next_disturbance:
                self.disturb()
                next_disturbance = time.monotonic() + self.random.uniform(1, 6)
            time.sleep(0.2)
        self.wait_until_connected()
        for number, word in ((signal.SIGUSR1, "quiet"), (signal.SIGTERM, "end")):
            for peer in self.peers:
                os.kill(peer.process.pid, number)
            self.wait_for(word, 60)
        self.check_end()
        return time.monotonic() - began

    def wait_until_connected(self):
        wanted = self.options.connections * (len(self.peers) - 1)

        def connected():
            self.listen()
            return all(peer.counts.get("established") == wanted for peer in self.peers)
        if not harness.poll_until(connected, NOTICED_SECONDS, 0.2):
            self.fail(f"not all are connected: {[peer.counts.get('established') for peer in self.peers]} of {wanted}")

    def check_end(self):
        for peer in self.peers:
            if peer.process.wait(20) != 0:
                self.fail(f"process {peer.number} ends with {peer.process.wait(0)}")
            descriptors, mappings = map(int, self.said["end"][peer.number])
            if descriptors > MAX_DESCRIPTORS or mappings > MAX_MAPPINGS:
                self.fail(f"process {peer.number} has {descriptors} descriptors and {mappings} mappings left")
        for host in self.hosts:
            if not harness.poll_until(lambda h=host: not h.status()["processes"], 10, 0.1):
                self.fail(f"a host still has processes: {host.status()['processes']}")
            if not harness.poll_until(lambda h=host: not h.agents(), 60, 0.2):
                self.fail("an agent stays though nothing uses it")

    def report(self, seconds):
        names = ["sends", "receives", "writes", "reads", "atomics", "windows", "loose"]
        totals = {name: sum(peer.counted(name) for peer in self.peers) for name in [*names, "bytes"]}
        queue_pairs = self.options.connections * len(self.peers) * (len(self.peers) - 1)
        missing = [name for name, total in totals.items() if total == 0]
        if missing:
            self.fail(f"nothing at all was counted of {missing}")
        print(f"{seconds:.0f} s, {len(self.peers)} processes, {queue_pairs} queue pairs: " +
              ", ".join(f"{totals[name]:,} {name}" for name in names) + f"; {totals['bytes'] / 1e9:.1f} GB verified")
        left = [list(map(int, self.said["end"][peer.number])) for peer in self.peers]
        print(f"left at the end: at most {max(one[0] for one in left)} descriptors, {max(one[1] for one in left)} mappings")
        print(", ".join(f"{count} x {name}" for name, count in sorted(self.disturbances.items())) +
              f"; {self.lost} ends of connections lost, all of them to processes that were killed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    parser.add_argument("--seconds", type=float, default=90, help="length of the test")
    parser.add_argument("--connections", type=int, default=20, metavar="N", help="connections between any two processes")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="seed of the random numbers")
    parser.add_argument("--calm", action="store_true", help="kill and stop no process")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    print(f"seed {options.seed}", flush=True)
    with harness.Hosts(options.build) as hosts:
        soak = Soak(hosts, options)
        soak.report(soak.run())


if __name__ == "__main__":
    main()
