#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""connection_test.py BUILD [TEST...]: kills either end, its agent or the link at every stage of a connection. The survivor
must get an event, the dead end's resources must be freed, and the next connection must succeed."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness  # noqa: E402

BUILD = None
SOON = 8.0  # seconds; a lost message is resent after 4.3, and a peer is given up after sixteen times that

# For each stage: the client's commands, the server's commands, and the event that each then gets.
STAGES = {
    "listening": [],
    "resolved": [("client", "resolve", "ADDR_RESOLVED"), ("client", "route", "ROUTE_RESOLVED")],
    "requested": [("client", "connect", None), ("server", None, "CONNECT_REQUEST")],
    "answered": [("server", "accept", None), ("client", None, "CONNECT_RESPONSE")],
    "established": [("client", "establish", None), ("server", None, "ESTABLISHED")],
    "leaving": [("client", "disconnect", None), ("server", None, "DISCONNECTED")],
}
ENDINGS = {"REJECTED", "CONNECT_ERROR", "UNREACHABLE", "DISCONNECTED", "ADDR_ERROR", "ROUTE_ERROR", "DEVICE_REMOVAL"}


class Peer:
    """A cm_peer process: sends it commands and reads its output."""

    def __init__(self, host, role, address, port):
        command = [*host.enter(), *harness.ordinary_user(), host.hosts.build.program, "run", CM_PEER, role, address, port]
        read, self._write = os.pipe()
        self.process = subprocess.Popen([str(word) for word in command], stdin=read, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, cwd="/", start_new_session=True)
        os.close(read)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.said = []
        self._rest = b""
        self.role = role

    def tell(self, command):
        os.write(self._write, command.encode() + b"\n")
        self.wait_for(lambda line: line == f"step {command} 0", f"step {command}")

    def read(self):
        while chunk := self.process.stdout.read():
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        self.said += [line.decode() for line in lines]
        return self.said

    def wait_for(self, wanted, what, seconds=SOON):
        """Returns the first line for which wanted(line) is true, and removes it."""
        def found():
            lines = self.read()
            for number, line in enumerate(lines):
                if wanted(line):
                    del lines[number]
                    return line
            return None
        line = harness.poll_until(found, seconds)
        if line is None:
            raise AssertionError(f"the {self.role} does not say '{what}', only {self.said}")
        return line

    def wait_for_event(self, name):
        return self.wait_for(lambda line: line.startswith(f"event {name} "), name)

    def wait_for_ending(self, seconds=SOON):
        return self.wait_for(lambda line: line.startswith("event ") and line.split()[1] in ENDINGS or
                             line.startswith("error "), "an ending", seconds)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        os.close(self._write)
        self.process.stdout.close()


class ConnectionChaos(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.server_host, self.client_host = self.hosts.two()
        self.peers = []

    def start(self, host, role, port):
        peer = Peer(host, role, self.server_host.ipv4, port)
        self.peers.append(peer)
        self.addCleanup(peer.close)
        return peer

    def begin(self, stage):
        """Starts a server and a client and brings them to `stage`."""
        for peer in self.peers:  # left by an earlier stage that failed
            peer.kill()
        port = self.hosts.port()
        peers = {"server": self.start(self.server_host, "server", port)}
        peers["server"].wait_for(lambda line: line == "step listening 0", "listening")
        peers["client"] = self.start(self.client_host, "client", port)
        peers["client"].wait_for(lambda line: line == "step created 0", "created")
        for name, steps in STAGES.items():
            for who, command, event in steps:
                if command:
                    peers[who].tell(command)
                if event:
                    peers[who].wait_for_event(event)
            if name == stage:
                return peers["server"], peers["client"]
        raise KeyError(stage)

    def assert_nothing_left(self, *hosts):
        """Checks that no identifier, port or slot is held on these hosts. Identifiers in TIMEWAIT are allowed: they expire."""
        def held():
            found = []
            for host in hosts:
                status = host.status()
                found += [(host.namespace, process["pid"]) for process in status["processes"]]
                managed = status["connection_management"]  # None: no agent runs
                if managed and managed["identifiers"]:
                    found.append((host.namespace, managed))
            return found
        left = harness.poll_until(lambda: not held(), 5, 0.05)
        self.assertTrue(left, f"still held: {held()}")

    def assert_connects_anew(self):
        server, client = self.begin("established")
        client.tell("disconnect")
        server.wait_for_event("DISCONNECTED")
        server.tell("disconnect")
        client.wait_for_event("DISCONNECTED")
        server.kill()
        client.kill()

    def kill_agent(self, host):
        agents = host.agents()
        self.assertEqual(len(agents), 1)
        os.kill(agents[0], signal.SIGKILL)

    def set_link(self, state):
        harness.sh("ip", "-n", self.client_host.namespace, "link", "set", "eth0", state)
        harness.poll_until(lambda: f"state {state.upper()}" in
                           harness.sh("ip", "-n", self.client_host.namespace, "link", "show", "eth0"), 10)

    def test_killed_client(self):
        for stage in STAGES:
            with self.subTest(stage=stage):
                server, client = self.begin(stage)
                client.kill()
                if stage == "requested":
                    server.tell("accept")  # a request that was not yet accepted gives no event, as with the kernel
                if stage in ("requested", "answered", "established"):
                    server.wait_for_ending()
                server.kill()
                self.assert_nothing_left(self.server_host, self.client_host)
        self.assert_connects_anew()

    def test_killed_server(self):
        for stage in STAGES:
            with self.subTest(stage=stage):
                server, client = self.begin(stage)
                server.kill()
                if stage in ("requested", "answered", "established", "leaving"):
                    client.wait_for_ending()
                elif stage == "resolved":
                    client.tell("connect")
                    client.wait_for_event("REJECTED")  # the listener is gone
                client.kill()
                self.assert_nothing_left(self.server_host, self.client_host)
        self.assert_connects_anew()

    def test_killed_agent_of_the_client(self):
        for stage in STAGES:
            with self.subTest(stage=stage):
                server, client = self.begin(stage)
                self.kill_agent(self.client_host)
                if stage in ("requested", "answered"):
                    client.wait_for_ending()
                    if stage == "requested":
                        server.tell("accept")
                    client.tell("destroy")
                    server.wait_for_ending(seconds=30)
                elif stage == "established":
                    # The connection survives without an agent; the next agent disconnects it.
                    client.tell("disconnect")
                    server.wait_for_event("DISCONNECTED")
                    server.tell("disconnect")
                    client.wait_for_event("DISCONNECTED")
                server.kill()
                client.kill()
                self.assert_nothing_left(self.server_host, self.client_host)
        self.assert_connects_anew()

    def test_killed_agent_of_the_server(self):
        for stage in STAGES:
            with self.subTest(stage=stage):
                server, client = self.begin(stage)
                self.kill_agent(self.server_host)
                if stage in ("listening", "resolved"):
                    # Any program starts the next agent, which keeps listening.
                    self.server_host.run("ibv_devices")
                    if stage == "listening":
                        client.tell("resolve")
                        client.wait_for_event("ADDR_RESOLVED")
                        client.tell("route")
                        client.wait_for_event("ROUTE_RESOLVED")
                    client.tell("connect")
                    server.wait_for_event("CONNECT_REQUEST")
                elif stage in ("requested", "answered"):
                    if stage == "requested":
                        server.tell("accept")
                    server.wait_for_ending()
                elif stage == "established":
                    server.tell("disconnect")
                    client.wait_for_event("DISCONNECTED")
                client.kill()
                server.kill()
                self.assert_nothing_left(self.server_host, self.client_host)
        self.assert_connects_anew()

    def test_lost_address_and_device(self):
        server, client = self.begin("established")
        harness.sh("ip", "-n", self.client_host.namespace, "addr", "del", f"{self.client_host.ipv4}/24", "dev", "eth0")
        # Removing an address gives no event, as with the kernel.
        status, output = self.client_host.command("link", "del", "rxe_eth0")
        self.assertEqual(status, 0, output)
        client.wait_for_event("DEVICE_REMOVAL")
        self.assertEqual([line for line in server.read() if line.startswith("event")], [])
        client.kill()
        server.kill()
        self.assert_nothing_left(self.client_host)

    def test_lost_link(self):
        for stage in STAGES:
            with self.subTest(stage=stage):
                server, client = self.begin(stage)
                self.addCleanup(self.set_link, "up")
                self.set_link("down")
                if stage == "listening":
                    client.tell("resolve")
                    client.wait_for_ending()
                client.kill()
                server.kill()
                self.assert_nothing_left(self.client_host)
                self.set_link("up")
                # Wait until the server has given up resending to the lost client.
                self.assert_nothing_left(self.server_host, self.client_host)
                self.assert_connects_anew()


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    CM_PEER = pathlib.Path(BUILD).resolve() / "tests" / "cm_peer"
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    unittest.main()
