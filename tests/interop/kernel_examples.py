#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of examples/ over rdma-core on the Linux kernel's rdma_rxe: both ends in the machine, and one end over
Verbena. The files are those that tests/examples runs over Verbena, as one build serves both. Runs the benchmark of remote
procedure calls in the machine, too.

    kernel_examples.py --build build/release
    kernel_examples.py --build build/release --only kv
"""

import os
import pathlib
import re
import shlex
import shutil
import sys
import time

import kernel_vm
from kernel_vm import harness

SECONDS = 120  # for one program: the machine is emulated
PORT = 7471
ROUNDS = 300  # of a ping-pong: a round trip between the machine and us takes milliseconds
GROUP = "239.1.2.3"
PROGRAMS = ("examples/clock", "examples/file_copy", "examples/kv", "examples/lock", "examples/multicast_chat",
            "examples/pingpong", "examples/ring", "bin/cpp_rpc")


class Wrong(Exception):
    """A program does not do what it should."""


class Kernel:
    """Starts programs in the machine, over rdma-core. They see the files of the test below /host."""

    name = "kernel"
    addresses = {"ipv4": kernel_vm.IPV4, "ipv6": kernel_vm.IPV6}
    own_folder = "/tmp"  # for FIFOs, which /host cannot have

    def __init__(self, hosts, machine):
        self._hosts, self._machine = hosts, machine

    def path(self, name):
        return f"/host/files/{name}"

    def start(self, shell):
        return self._machine.start(self._hosts, "bash", "-c", shlex.quote(f"cd /host; {shell}"), seconds=SECONDS)


class Verbena:
    """Starts programs at our end of the cable, over Verbena."""

    name = "verbena"
    addresses = {"ipv4": kernel_vm.OUR_IPV4, "ipv6": kernel_vm.OUR_IPV6}

    def __init__(self, machine):
        self._machine = machine
        self.own_folder = machine.shared / "files"

    def path(self, name):
        return str(self._machine.shared / "files" / name)

    def start(self, shell):
        return self._machine.our_host.verbena("run", "bash", "-c", f"cd {self._machine.shared}; {shell}")


class Run:
    """A run of a case: programs at two ends, of which one serves the other."""

    def __init__(self, server, client, files, family="ipv4"):
        self.server, self.client, self.files = server, client, files
        self.address = server.addresses[family]
        self.where = f"[{self.address}]:{PORT}" if family == "ipv6" else f"{self.address}:{PORT}"
        self._started = []

    def start(self, end, *words, shell=""):
        """Starts a program at this end. `shell`: redirections."""
        process = end.start(f"exec ./{shlex.join(map(str, words))} {shell}")
        self._started.append(process)
        return process

    def serve(self, *words, ready, shell=""):
        """Starts a program at the server's end, and waits until its output has the word `ready`."""
        process = self.start(self.server, *words, shell=shell)
        self.wait_for(process, ready)
        return process

    def call(self, *words, expected="", status=0, shell=""):
        """Runs a program at the client's end."""
        self.finish(self.start(self.client, *words, shell=shell), expected, status)

    def wait_for(self, process, text):
        harness.poll_until(lambda: text in process.output or not process.running(), SECONDS)
        if text not in process.output:
            raise Wrong(f"'{text}' does not come\n{self.report()}")

    def finish(self, process, expected="", status=0):
        """Waits for the end of a program, and checks its output, a regular expression, and its exit status."""
        found = process.wait(SECONDS)
        if found != status or not re.search(expected, process.output, re.MULTILINE):
            raise Wrong(f"exit status {found}, expected {status} and '{expected}': {process.command}\n{self.report()}")

    def report(self):
        return "\n".join(f"--- {process.command}\n{process.output}" for process in self._started)

    def end(self):
        for process in self._started:
            process.kill()

    # ---- files that both ends see

    def write(self, name, data):
        path = self.files / name
        path.write_bytes(data)
        path.chmod(0o666)

    def expect_equal(self, name, other):
        if (self.files / name).read_bytes() != (self.files / other).read_bytes():
            raise Wrong(f"{name} and {other} differ\n{self.report()}")


def ping_pong(run, transport):
    expected = rf"^{transport}: {ROUNDS} round trips, [\d.]+ us each$"
    server = run.serve("pingpong", transport, PORT, ready="listening")
    run.call("pingpong", transport, PORT, run.address, ROUNDS, expected=expected)
    run.finish(server, expected)


def xrc_ping_pong(run):
    """rdma_rxe has no XRC, and the program says so."""
    run.call("pingpong", "xrc", PORT, expected=r"^pingpong: make an XRC domain on rxe0: Operation not supported", status=1)


def file_copy(run):
    shared = run.files / "shared"
    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir()
    shared.chmod(0o777)
    run.serve("file_copy", "serve", run.server.path("shared"), f"[::]:{PORT}", ready="serving")
    for size in (0, 1, (4 << 20) + 12345):
        run.write("there", os.urandom(size))
        run.call("file_copy", "put", run.where, run.client.path("there"), "name", expected=f"^{size} bytes$")
        run.expect_equal("shared/name", "there")
        run.write("back", b"old")
        run.call("file_copy", "get", run.where, "name", run.client.path("back"), expected=f"^{size} bytes$")
        run.expect_equal("back", "there")
    run.call("file_copy", "get", run.where, "absent", run.client.path("back"), expected="No such file", status=1)


class Member:
    """A member of the chat. A FIFO is its keyboard."""

    def __init__(self, run, end, name):
        self.run, self.end = run, end
        self._fifo = f"{end.own_folder}/{name}"
        if end.start(f"rm -f {self._fifo}; mkfifo {self._fifo}").wait(SECONDS) != 0:
            raise Wrong("no FIFO could be made")
        self._keyboard = end.start(f"exec sleep {SECONDS} > {self._fifo}")  # keeps it open
        self.process = run.start(end, "multicast_chat", end.addresses["ipv4"], name, GROUP, shell=f"< {self._fifo}")

    def type(self, line):
        if self.end.start(f"echo {shlex.quote(line)} > {self._fifo}").wait(SECONDS) != 0:
            raise Wrong(f"cannot type to {self.process.command}\n{self.run.report()}")

    def leave(self):
        self._keyboard.kill()
        self.run.finish(self.process)


def multicast_chat(run):
    ann, bob = Member(run, run.server, "ann"), Member(run, run.client, "bob")
    for member in (ann, bob):
        run.wait_for(member.process, f"joined {GROUP}")
    ann.type("hello")
    run.wait_for(bob.process, "ann: hello")
    bob.type("hello, ann")
    run.wait_for(ann.process, "bob: hello, ann")
    for member in (ann, bob):
        member.leave()


def group_of_ipv6(run):
    """Linux 6.1 joins no IPv6 group on RoCE, and the program says so."""
    run.call("multicast_chat", kernel_vm.IPV6, "ann", "ff1e::1", expected="join a multicast group: Operation not supported", status=1)


def ring(run, how):
    run.write("data", os.urandom(1_000_001))
    run.write("copy", b"")
    consumer = run.serve("ring", how, PORT, ready="listening", shell=f"> {run.server.path('copy')}")
    run.call("ring", how, PORT, run.address, shell=f"< {run.client.path('data')}")
    run.finish(consumer)
    run.expect_equal("copy", "data")


def lock(run):
    """A client at the server's end, and two at the other."""
    server = run.serve("lock", "serve", f"[::]:{PORT}", 3, ready="listening")
    clients = [run.start(end, "lock", "count", run.where, 200) for end in (run.server, run.client, run.client)]
    for client in clients:
        run.finish(client, r"^200 increments, \d+ attempts")
    run.finish(server, "^counter 600, expected 600$")


def kv(run):
    run.serve("kv", "serve", f"[::]:{PORT}", ready="serving")
    for value in ("value", "", "a longer value"):
        run.call("kv", "put", run.where, "key", value)
        run.call("kv", "get", run.where, "key", expected=f"^{value}$")
    run.call("kv", "get", run.where, "absent", expected="no key 'absent'", status=1)
    run.call("kv", "stress", run.where, expected=r"^\d+ values, \d+ torn")


def clock(run):
    run.serve("clock", "serve", f"[::]:{PORT}", ready="serving")
    run.call("clock", "ask", run.where, expected=r"^the server's clock is [+-][\d.]+ us ahead, within [\d.]+ us, by [1-8] ")


def no_server(run):
    run.call("kv", "get", run.where, "key", expected="^kv: connect.*refused", status=1)
    run.call("pingpong", "rc", PORT, run.address, expected="^pingpong: connect.*refused", status=1)
    run.call("clock", "ask", run.where, expected="^clock: resolve.*refused", status=1)
    run.call("kv", "get", f"localhost:{PORT}", "key", expected="^kv: .*no RDMA device is at the interface", status=1)


def remote_calls(run):
    run.call("cpp_rpc", 1, 64, run.where.rsplit(":", 1)[0],
             expected=r"^64 calls under way: \d+ calls/s\n.*, p50 .*\n1048576 bytes each way: \d+ calls/s$")


# Each case: name, function, further arguments, families, whether it also runs between the kernel and Verbena.
BOTH = ("ipv4", "ipv6")
CASES = (
    *((f"pingpong {transport}", ping_pong, (transport,), ("ipv4",), True) for transport in ("rc", "uc", "ud", "srq")),
    ("pingpong xrc", xrc_ping_pong, (), ("ipv4",), False),
    ("file_copy", file_copy, (), BOTH, True),
    ("multicast_chat", multicast_chat, (), ("ipv4",), True),
    ("multicast_chat, IPv6 group", group_of_ipv6, (), ("ipv4",), False),
    *((f"ring {how}", ring, (how,), ("ipv4",), True) for how in ("atomic", "immediate")),
    ("lock", lock, (), ("ipv4",), True),
    ("kv", kv, (), BOTH, True),
    ("clock", clock, (), BOTH, True),
    ("no server", no_server, (), ("ipv4",), False),
    ("cpp_rpc", remote_calls, (), BOTH, False),
)


def run_case(case, server, client, files, family):
    """Returns a complaint, or None."""
    _, function, arguments, _, _ = case
    run = Run(server, client, files, family)
    try:
        function(run, *arguments)
        return None
    except Wrong as wrong:
        return str(wrong)
    finally:
        run.end()


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default="", help="run the cases that have this in their name")
    options = parser.parse_args()
    kernel_vm.image()
    began = time.monotonic()
    failures, runs = [], 0
    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts) as machine:
        for program in PROGRAMS:
            shutil.copy(pathlib.Path(options.build) / program, machine.shared)
        files = machine.shared / "files"
        files.mkdir()
        for folder, mode in ((machine.shared, 0o755), (files, 0o777)):  # for ordinary users
            folder.chmod(mode)
        kernel, verbena = Kernel(hosts, machine), Verbena(machine)
        for case in CASES:
            name, _, _, families, has_pairs = case
            if options.only not in name:
                continue
            pairs = [(kernel, kernel), *([(kernel, verbena), (verbena, kernel)] if has_pairs else [])]
            for server, client, family in ((*pair, family) for pair in pairs for family in families):
                complaint = run_case(case, server, client, files, family)
                runs += 1
                print(f"{time.monotonic() - began:6.1f} s  {server.name} serves {client.name}, {family}: {name:26} "
                      f"{'FAILED' if complaint else 'ok'}", flush=True)
                if complaint:
                    failures.append(complaint)
                    print(f"=== {complaint}", flush=True)
    print(f"\n{runs} runs, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
