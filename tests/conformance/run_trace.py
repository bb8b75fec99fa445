#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the traces of Debian's ib_write_bw, as an ordinary user and under root's agent: while it runs, with each packet, and
after its peer and then itself were killed. Then checks those of Debian's rping, which show the events of its connections.

    run_trace.py --build build/release
"""

import json

import harness
from run_users import as_user

RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR
USERS = (65534, 65533)


def trace(host, pid, *options, user=None):
    """Runs `verbena trace`: (exit status, events)."""
    status, output = host.command("trace", "--json", *options, pid, user=user)
    return status, [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def kinds(events):
    return {event["event"] for event in events}


def start_pair(host, user=None):
    port = host.hosts.port()
    words = ("run", "ib_write_bw", "-p", port, "-D", "100", "-s", "4096")
    server = host.verbena(*words, user=user)
    harness.poll_until(lambda: server.listens(port), 20)
    client = host.verbena(*words, "127.0.0.1", user=user)
    ready = harness.poll_until(lambda: "ready_to_send" in kinds(trace(host, client.pid, user=user)[1]), 30, 0.2)
    if not ready:
        raise RuntimeError(f"ib_write_bw does not run:\n{server.output}{client.output}")
    return server, client


def check_running(judge, host, server, client):
    events = trace(host, client.pid)[1]
    wanted = {"qp_made", "state", "peer", "route", "ready_to_send"}
    judge.say("a running program: its queue pair, states, peer and route", None if wanted <= kinds(events) else events)
    [peer] = [event for event in events if event["event"] == "peer"]
    [made] = [event for event in trace(host, server.pid)[1] if event["event"] == "qp_made"]
    right = peer["remote_qpn"] == made["qpn"] and peer["remote_gid"] == "127.0.0.1"
    judge.say("its peer is the other program's queue pair", None if right else (peer, made))
    judge.say("packets are not recorded by default", None if "packet_sent" not in kinds(events) else kinds(events))

    status, output = host.command("trace")
    listed = all(str(process.pid) in output for process in (server, client))
    judge.say("without a PID: a list of traces", None if status == 0 and listed else output)
    for options, right in ((("--qp", hex(peer["qpn"])), len(events)), (("--qp", "0"), 0), (("--last", "2"), 2),
                           (("--since", "0.001"), 0)):
        found = trace(host, client.pid, *options)
        judge.say(f"{' '.join(options)}", None if found[0] == 0 and len(found[1]) == right else found)


def check_details(judge, host, client):
    status, events = trace(host, client.pid, "--all", "--seconds", "1")
    packets = [event for event in events if event["event"] in ("packet_sent", "posted", "completion")]
    judge.say("--all: requests, packets, completions", None if status == 0 and len(packets) > 100 else (status, events))

    def latest():
        return trace(host, client.pid, "--last", "1")[1][0]["time_ns"]

    def is_over():
        return latest() == latest()

    judge.say("no packets after the command has ended", None if harness.poll_until(is_over, 10, 0.2) else "it goes on")
    events = trace(host, client.pid)[1]
    judge.say("frequent events have not displaced rare ones", None if "ready_to_send" in kinds(events) else kinds(events))


def check_death(judge, host, server, client):
    server.kill()
    client.wait(30)
    found = harness.poll_until(lambda: trace(host, client.pid)[0] == 0, 10, 0.2)
    events = trace(host, client.pid)[1] if found else []
    tries = [event["tries_left"] for event in events if event["event"] == "timeout"]
    # On a busy machine it may have retried before and then got an answer, so only the last retries count.
    in_turn = tries[-8:] == list(range(7, -1, -1))
    judge.say("the peer of a killed program: each timeout with the remaining tries", None if in_turn else (tries, events[-20:]))
    failed = [event for event in events if event["event"] == "send_failed"]
    right = len(failed) == 1 and failed[0]["status"] == RETRY_EXCEEDED
    judge.say("and the error completion, with its status", None if right else failed)

    status, events = trace(host, server.pid)
    judge.say("the killed program's own trace exists", None if status == 0 and "peer" in kinds(events) else (status, events))
    output = host.command("trace")[1]
    judge.say("the list says that it has ended", None if f"{server.pid} " in output and " ended " in output else output)
    status, output = host.command("trace", "--follow", server.pid)
    judge.say("it cannot be followed", None if status == 1 and "has ended" in output else (status, output))

    ended = harness.poll_until(lambda: not host.agents(), 30, 0.2)
    judge.say("the agent ends nevertheless, as nothing uses it", None if ended else host.agents())
    status, events = trace(host, client.pid)
    judge.say("and the traces still exist", None if status == 0 and "send_failed" in kinds(events) else (status, events))


def check_bad_usage(judge, host):
    for words, status in ((("999999999",), 1), (("0",), 2), (("--all",), 2), (("--seconds", "1", "1"), 2), (("x",), 2)):
        found = host.command("trace", *words)
        judge.say(f"trace {' '.join(words)}: exit status {status}", None if found[0] == status else found)


def names(events, kind):
    return [event["name"] for event in events if event["event"] == kind]


def check_connections(judge, host):
    """rping connects to an address without a listener, then to a server; then both are killed."""
    port = host.hosts.port()
    alone = host.verbena("run", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "1")
    alone.wait(30)
    events = trace(host, alone.pid)[1]
    refused = [event for event in events if event["event"] == "cm_event" and event["trouble"]]
    right = len(refused) == 1 and refused[0]["status"] == 8 and "nobody listens" in refused[0]["text"]
    judge.say("a refused connection: the reason and its description", None if right else events)

    server = host.verbena("run", "rping", "-s", "-a", "0.0.0.0", "-p", port)
    harness.poll_until(lambda: "rdma_listen" in names(trace(host, server.pid)[1], "cm_call"), 20)
    client = host.verbena("run", "rping", "-c", "-a", "127.0.0.1", "-p", port)
    harness.poll_until(lambda: "RDMA_CM_EVENT_ESTABLISHED" in names(trace(host, server.pid)[1], "cm_event"), 30, 0.2)
    events = trace(host, client.pid)[1]
    right = (names(events, "cm_event")[:3] == [f"RDMA_CM_EVENT_{name}" for name in
                                               ("ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_RESPONSE")] and
             names(events, "cm_sent") == ["REQ", "RTU"] and names(events, "cm_received") == ["REP"])
    judge.say("the active side: addresses, REQ, REP, RTU", None if right else events)
    [made] = [event for event in events if event["event"] == "qp_made"]
    peers = trace(host, server.pid)[1]
    request = [event for event in peers if event["event"] == "cm_received" and event["name"] == "REQ"]
    right = (len(request) == 1 and request[0]["remote_qpn"] == made["qpn"] and names(peers, "cm_sent") == ["REP"])
    judge.say("the passive side: the REQ with the other's queue pair, REP", None if right else peers)
    of_qp = trace(host, client.pid, "--qp", hex(made["qpn"]))[1]
    right = {"ADDR_RESOLVED", "CONNECT_RESPONSE"} <= {name[14:] for name in names(of_qp, "cm_event")}
    judge.say("--qp: the queue pair's connection, too", None if right else of_qp)
    judge.say("--last: of all events", None if len(trace(host, client.pid, "--last", "3")[1]) == 3 else events)

    client.kill()
    ended = harness.poll_until(lambda: "DREQ" in names(trace(host, client.pid)[1], "cm_sent"), 20, 0.2)
    judge.say("a killed program: the DREQ that was sent for it", None if ended else trace(host, client.pid))
    events = trace(host, client.pid)[1]
    judge.say("and its queue pair's events", None if "qp_made" in kinds(events) else events)
    server.kill()


def check_users(judge, host):
    """Traces under root's agent."""
    host.start_agent()
    mine, others = map(as_user, USERS)
    server, client = start_pair(host, mine)
    for process in (server, client):
        refused = trace(host, process.pid, user=others)
        judge.say("another user cannot read a trace", None if refused[0] == 1 else refused)
    refused = trace(host, client.pid, "--all", "--seconds", "1", user=others)
    judge.say("nor request each packet", None if refused[0] == 1 else refused)
    for process in (server, client):
        process.kill()
    judge.say("root can read it, even after the program has ended", None if harness.poll_until(
        lambda: trace(host, server.pid, user=[])[0] == 0, 10, 0.2) else "no trace")
    judge.say("its user can", None if trace(host, server.pid, user=mine)[0] == 0 else "no trace")
    refused = trace(host, server.pid, user=others)
    judge.say("another user cannot", None if refused[0] == 1 else refused)


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ib_write_bw", "rping")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        server, client = start_pair(host)
        check_running(judge, host, server, client)
        check_details(judge, host, client)
        check_bad_usage(judge, host)
        check_death(judge, host, server, client)
        check_connections(judge, hosts.one())
        check_users(judge, hosts.one())
    judge.exit()


if __name__ == "__main__":
    main()
