# SPDX-License-Identifier: Apache-2.0
"""Runs two of tests/chaos/talker.cc on one host, and inspects what the agent holds for them."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness  # noqa: E402

ENDLESS = 10**9
LOST = 4  # exit status: the peer is gone


class Talkers:
    """A server and a client. Tuples give one item for each, in this order: words in front of the program; the function that
    starts `verbena` with arguments (by default as an ordinary user)."""

    next_port = 20000

    def __init__(self, build, host, *options, rounds=ENDLESS, wrap=((), ()), environments=({}, {}), starts=(None, None)):
        self.host = host
        program = pathlib.Path(build).resolve() / "tests" / "talker"
        port = Talkers.next_port
        Talkers.next_port += 10
        both = []
        for side, words, environment, start in zip(("server", "client"), wrap, environments, starts):
            start = start or host.verbena
            both.append(start("run", *words, program, side, host.ipv4, port, rounds, *options, environment=environment))
        self.server, self.client = both

    @property
    def both(self):
        return self.server, self.client

    def output(self):
        return "".join(f"--- {one.command[-4:]}\n{one.output}" for one in self.both)

    def until_up(self):
        """Waits until both have completed some rounds; False if one has ended."""
        harness.poll_until(lambda: all("up" in one.output for one in self.both) or not all(one.running() for one in self.both), 30)
        return all("up" in one.output and one.running() for one in self.both)

    def end(self, seconds):
        return self.server.wait(seconds), self.client.wait(seconds)

    def kill(self):
        for one in self.both:
            one.kill()


def preload(build, *libraries):
    """Command prefix that preloads libraries of build/tests and disables core dumps."""
    paths = ":".join(str(pathlib.Path(build).resolve() / "tests" / f"lib{name}.so") for name in libraries)
    return ("sh", "-c", f'ulimit -c 0; LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}{paths}" exec "$@"', "sh")


def threads(pid):
    """{name: thread id}"""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found[(task / "comm").read_text(encoding="ascii").strip()] = int(task.name)
    return found


def start_short_agent(host):
    """Starts an agent with a short idle timeout, so that tests need not wait long for it to exit."""
    starter = host.start([host.hosts.build.program.parent / "verbena-agent", "--idle-timeout=1"])
    if starter.wait(20) != 0:
        raise RuntimeError(starter.output)


def is_listed(host, *pids):
    return any(process["pid"] in pids for process in host.status()["processes"])


def sockets(host):
    """The UDP ports bound in the host's network namespace."""
    lines = harness.sh("ip", "netns", "exec", host.namespace, "cat", "/proc/net/udp", "/proc/net/udp6").splitlines()
    return sorted(line.split()[1].rsplit(":", 1)[1] for line in lines if "local_address" not in line)


def files_left():
    """The files that Verbena may have left in file systems, for the test's user and for root."""
    found = set()
    for folder in ("/dev/shm", "/tmp", "/run", f"/run/user/{harness.NOBODY}"):
        for path in pathlib.Path(folder).glob("verbena*"):
            if path.name.startswith("verbena-installed-") or not path.is_dir():
                found.add(str(path))
                continue
            found |= {str(one) for one in path.iterdir()}
    return found


def namespace_folders(host):
    """The state directories of the host's agents."""
    inode = os.stat(f"/run/netns/{host.namespace}").st_ino
    return [path for path in files_left() if path.endswith(f"/{inode}")]
