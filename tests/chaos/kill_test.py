#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill_test.py BUILD [TEST...]: programs and agents are killed with SIGKILL in the middle of traffic. Unrelated traffic must
continue, the peer must notice, and the dead process's resources must be free within a second."""

import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness  # noqa: E402

BUILD = None
RECLAIM_SECONDS = 1.0
RETRY_EXCEEDED = "Failed status 12"  # IBV_WC_RETRY_EXC_ERR, as perftest prints it


class Traffic:
    """A server and a client of perftest that write for `seconds`. The constructor returns when packets are flowing."""

    def __init__(self, server, client, seconds, program="ib_write_bw"):
        port = server.hosts.port()
        command = [program, "-F", "-D", seconds, "-p", port]
        self.server = server.verbena("run", *command)
        if not harness.poll_until(lambda: self.server.listens(port) or not self.server.running(), 20):
            raise AssertionError("the server does not listen")
        self.client = client.verbena("run", *command, server.ipv4)
        if not harness.poll_until(lambda: sent_packets(client, self.client.pid) > 100, 20, 0.05):
            raise AssertionError(f"no packets flow\n{self.server.output}\n{self.client.output}")

    def end(self, seconds):
        return self.server.wait(seconds), self.client.wait(seconds)


def process_of(host, pid):
    return next((one for one in host.status()["processes"] if one["pid"] == pid), None)


def sent_packets(host, pid):
    """Number of packets sent by the process's QPs; 0 if the agent does not know the process."""
    process = process_of(host, pid)
    return sum(qp["counters"]["sent_packets"] for qp in process["queue_pairs"]) if process else 0


class Kill(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)

    def kill(self, process):
        os.kill(process.pid, signal.SIGKILL)
        return time.monotonic()

    def assert_reclaimed(self, host, pid, since):
        gone = harness.poll_until(lambda: process_of(host, pid) is None, 5)
        took = time.monotonic() - since
        self.assertTrue(gone, "the agent still lists the dead process")
        self.assertLess(took, RECLAIM_SECONDS)

    def assert_traffic_works(self, server, client):
        result = harness.pair(server, client, ["ibv_rc_pingpong", "-c"],
                              server_options=["-g", server.gid_index(server.ipv4)],
                              client_options=["-g", client.gid_index(client.ipv4)])
        self.assertTrue(result.good, result.report())

    def kill_the_server(self, server, client):
        traffic = Traffic(server, client, 60)
        since = self.kill(traffic.server)
        self.assert_reclaimed(server, traffic.server.pid, since)
        status = traffic.client.wait(20)
        self.assertIsNotNone(status, "the client does not hear that its peer is gone")
        self.assertNotEqual(status, 0)
        self.assertIn(RETRY_EXCEEDED, traffic.client.output)
        self.assert_traffic_works(server, client)

    def test_client_notices_a_killed_server_on_another_host(self):
        self.kill_the_server(*self.hosts.two())

    def test_client_notices_a_killed_server_on_its_own_host(self):
        host = self.hosts.one()
        self.kill_the_server(host, host)

    def test_server_is_unharmed_by_a_killed_client(self):
        server, client = self.hosts.two()
        traffic = Traffic(server, client, 60)
        since = self.kill(traffic.client)
        self.assert_reclaimed(client, traffic.client.pid, since)
        # A responder has no timer (IBTA volume 1, 9.7.5): the server notices nothing and stays usable.
        self.assert_traffic_works(server, client)

    def test_traffic_goes_on_without_its_agents(self):
        server, client = self.hosts.two()
        traffic = Traffic(server, client, 5)
        agents = server.agents() + client.agents()
        self.assertEqual(len(agents), 2)
        for agent in agents:
            os.kill(agent, signal.SIGKILL)
        # New programs start new agents, which must not touch the slots of running programs.
        self.assert_traffic_works(server, client)
        self.assertEqual(traffic.end(30), (0, 0), traffic.client.output + traffic.server.output)

    def test_new_agent_knows_the_processes_of_the_killed_one(self):
        server, client = self.hosts.two()
        traffic = Traffic(server, client, 8)
        for agent in client.agents():
            os.kill(agent, signal.SIGKILL)
        client.run("ibv_devinfo")  # starts an agent
        self.assertTrue(harness.poll_until(lambda: process_of(client, traffic.client.pid), 5, 0.05),
                        "the new agent does not know the process that goes on")
        self.assertEqual(traffic.end(30), (0, 0), traffic.client.output + traffic.server.output)

    def test_slots_do_not_run_out(self):
        server, client = self.hosts.two()
        for _ in range(10):
            traffic = Traffic(server, client, 60, "ib_send_bw")
            since = self.kill(traffic.server)
            self.kill(traffic.client)
            self.assert_reclaimed(server, traffic.server.pid, since)
        self.assert_traffic_works(server, client)

    def test_agent_leaves_when_nothing_needs_it(self):
        server, client = self.hosts.two()
        self.assert_traffic_works(server, client)
        self.assertTrue(harness.poll_until(lambda: not server.agents() and not client.agents(), 30, 0.1),
                        "an agent stays though nothing uses it")


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    harness.require_root()
    harness.require_programs("ip", "setpriv", "ib_write_bw", "ib_send_bw", "ibv_rc_pingpong")
    unittest.main()
