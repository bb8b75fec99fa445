# SPDX-License-Identifier: Apache-2.0
"""Runs Verbena's versions of rdma-core's programs and Debian's, and compares their output.

A side is "o" (ours) or "d" (Debian's); "od" is a server of ours with a client of Debian's."""

import os
import re
import subprocess
import tempfile

import harness

PAIRS = ("oo", "od", "do")
NUMBERS = re.compile(r"0x[0-9a-f]+|\b(?<=LID |ECV |END |PSN |RQN )[0-9a-f]{4,6}\b|\b\d+(\.\d+)?\b|\binf\b")


def command(host, side, name, words, user=None):
    """The words that start a program on a host as an ordinary user, or with `user` in front of it."""
    program = ["run", f"/usr/bin/{name}"] if side == "d" else [name]
    return [*host.enter(), *(harness.ordinary_user() if user is None else user), str(host.hosts.build.program), *program, *map(str, words)]


class Run:
    """A running program whose standard output and standard error are kept apart."""

    def __init__(self, host, side, name, words, environment=None, user=None):
        self.name, self.side, self.words = name, side, words
        self._files = [tempfile.TemporaryFile() for _ in range(2)]
        kept = {**os.environ, **host.hosts.environment, **(environment or {})}
        self.process = subprocess.Popen(command(host, side, name, words, user), stdin=subprocess.DEVNULL, stdout=self._files[0],
                                        stderr=self._files[1], cwd="/", env={key: value for key, value in kept.items() if value is not None})
        self.status = None

    def said(self, which):
        file = self._files[which]
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")

    def finish(self, seconds):
        """Waits for the program to end, and kills it after `seconds`."""
        try:
            self.status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stdout, self.stderr = self.said(0), self.said(1)
        for file in self._files:
            file.close()
        return self

    def listens(self, port):
        return harness.listens(self.process.pid, port)

    def running(self):
        return self.process.poll() is None

    def report(self):
        whose = {"o": "ours", "d": "Debian's"}[self.side]
        how = "did not end in time" if self.status is None else f"exit status {self.status}"
        return f"--- {whose}: {self.name} {' '.join(map(str, self.words))}\n{self.stdout}{self.stderr}--- {how}"


def run(host, side, name, words, seconds=30, **options):
    return Run(host, side, name, words, **options).finish(seconds)


def pair(server, client, sides, name, words, *, server_words=(), client_words=(), clients=1, seconds=60):
    """Runs a server of one side and `clients` clients of the other. Returns their Runs, the server's first."""
    port = server.hosts.port()
    serving = Run(server, sides[0], name, ["-p", port, *words, *server_words])
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    calling = [Run(client, sides[1], name, ["-p", port, *words, *client_words, server.ipv4]) for _ in range(clients)]
    ended = [each.finish(seconds) for each in calling]
    return [serving.finish(10 if not any(each.status for each in ended) else 2), *ended]


def masked(text, name):
    """Output without numbers, the program's path, and options that only ours has."""
    lines = [line for line in text.splitlines() if "--json" not in line and "--help  " not in line]
    return [NUMBERS.sub("N", line.replace(f"/usr/bin/{name}", name)) for line in lines]


def complaints(text, name):
    """The masked lines without the ": Success" that rdma-core's programs append where errno is 0."""
    return [line.removesuffix(": Success") for line in masked(text, name)]


def difference(ours, theirs):
    """How ours differs from Debian's, or None. Ours may say more about an error: after a sentence, or in an additional line."""
    if ours.status != theirs.status:
        return f"exit status {ours.status}, not {theirs.status}\n{ours.report()}\n{theirs.report()}"
    if masked(ours.stdout, ours.name) != masked(theirs.stdout, ours.name):
        return f"another output\n{ours.report()}\n{theirs.report()}"
    said = iter(masked(ours.stderr, ours.name))
    for line in complaints(theirs.stderr, ours.name):
        if not any(own.startswith(line) for own in said):
            return f"no complaint {line!r}\n{ours.report()}\n{theirs.report()}"
    return None
