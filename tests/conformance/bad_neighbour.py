#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks root's agent as an ordinary user, in the agent's own protocol (src/control/protocol/messages.h). For
run_neighbours.py.

    bad_neighbour.py KIND...

It prints "has" when it has acquired what a user is entitled to, and waits for a line. It prints "ready" when the attack has begun,
and continues until it is killed. It runs at the lowest priority, since the test is not about how the kernel shares processors
among users.
"""

import array
import contextlib
import os
import resource
import select
import signal
import socket
import struct
import sys

MAGIC, VERSION = 0x6E627276, 6
HELLO, GET_CM_STATUS, GET_CM_IDS, OPEN_CHANNEL, CREATE_ID = 1, 34, 48, 64, 66
PORT_SPACE_TCP = 0x106
IDENTIFIERS = 60_000


def message(kind, body=b""):
    return struct.pack("<IHHIi", MAGIC, VERSION, kind, 1, 0) + body


def error_of(reply):
    return struct.unpack_from("<i", reply, 12)[0] if len(reply) >= 16 else None


class Session:
    """A connection to the agent, on which a hello has been sent. Without `reads`, replies are never read."""

    def __init__(self, reads=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.files = []
        self.channel = None
        self.socket.connect("\0verbena/0")
        self.socket.send(message(HELLO, b"neighbour".ljust(64, b"\0")))
        if reads and self.receive() != 0:
            raise OSError("no greeting")

    def receive(self):
        """Returns the error code of the next reply and keeps its descriptors; None: the agent has closed the connection."""
        reply, control, _, _ = self.socket.recvmsg(512, socket.CMSG_SPACE(4 * 4))
        for _, _, data in control:
            files = array.array("i")
            files.frombytes(data[:len(data) // 4 * 4])
            self.files.extend(files)
        return error_of(reply)

    def ask(self, kind, body=b"", file=None):
        """Sends a request without waiting for the reply."""
        control = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        self.socket.sendmsg([message(kind, body)], control)


def have_identifiers(count):
    """Creates `count` identifiers, or as many as the agent allows; returns their session."""
    session = Session()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session.channel = ours
    session.ask(OPEN_CHANNEL, struct.pack("<II", 1, 1), theirs.fileno())
    session.receive()
    for number in range(1, count + 1):
        session.ask(CREATE_ID, struct.pack("<IIHB5x", number, 1, PORT_SPACE_TCP, 2))
        if session.receive() != 0:
            break
    return session


def keep_asking(kind, sessions=8, at_once=16):
    """Keeps a number of requests pending at all times."""
    asking = {session.socket.fileno(): session for session in (Session() for _ in range(sessions))}
    for session in asking.values():
        for _ in range(at_once):
            session.ask(kind)
    poll = select.poll()
    for number in asking:
        poll.register(number, select.POLLIN)

    def go_on():
        for number, _ in poll.poll(0):
            with contextlib.suppress(OSError):
                asking[number].receive()
                asking[number].ask(kind)
    return go_on


def idle(reads):
    """Opens sessions until the agent refuses more."""
    kept = []
    with contextlib.suppress(OSError):
        while len(kept) < 5000:
            kept.append(Session(reads))

    def hold():
        del kept[5000:]  # refers to `kept`, so that the sessions stay open
    return hold


def lists():
    """Requests lists in many sessions, and keeps all descriptors that arrive open."""
    kept = [Session() for _ in range(240)]
    for session in kept:
        session.socket.setblocking(False)

    def go_on():
        for session in kept:
            with contextlib.suppress(OSError):
                session.ask(GET_CM_IDS)
            if len(session.files) < 40:
                with contextlib.suppress(OSError):
                    session.receive()
    return go_on


def greets():
    """Connects, says hello and disconnects, endlessly."""
    def go_on():
        with contextlib.suppress(OSError):
            session = Session()
            for file in session.files:
                os.close(file)
            session.socket.close()
    return go_on


def computes():
    """Only computes, with the priority that the agent has: as much as the agent's work for any neighbour can take."""
    def go_on():
        pass
    return go_on


KINDS = {
    "computes": computes,
    "status": lambda: keep_asking(GET_CM_STATUS),
    "lists": lists,
    "idle": lambda: idle(True),
    "deaf": lambda: idle(False),
    "greets": greets,
}


def main():
    kinds = sys.argv[1:]
    if kinds != ["computes"]:
        os.nice(19)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    having = have_identifiers(IDENTIFIERS) if {"status", "lists"}.intersection(kinds) else None
    print("has", flush=True)  # it has acquired its share
    sys.stdin.readline()
    work = [KINDS[kind]() for kind in kinds]
    print("ready", flush=True)
    is_quiet = {"idle", "deaf"}.issuperset(kinds)
    while having is None or having.channel:
        for each in work:
            each()
        if is_quiet:
            signal.pause()


if __name__ == "__main__":
    main()
