#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watches Debian's ib_write_bw as an ordinary user: with `verbena top` in a tmux terminal, using its keys; with `verbena top
--batch`; and with `verbena metrics`, once and over HTTP.

    run_watching.py --build build/release
"""

import re
import subprocess
import sys
import tempfile

import harness

PORT = 9792


class Terminal:
    """A terminal in its own tmux server, in which a command runs."""

    def __init__(self, host, *command):
        self._folder = tempfile.TemporaryDirectory(prefix="verbena-tmux-")
        self._at = ["tmux", "-f", "/dev/null", "-S", f"{self._folder.name}/socket"]
        words = [*host.enter(), *harness.ordinary_user(), *map(str, command)]
        self._tmux("new-session", "-d", "-x", "150", "-y", "24", "-s", "top", *words)

    def _tmux(self, *words):
        return subprocess.run([*self._at, *words], capture_output=True, text=True, timeout=20, check=False).stdout

    def send(self, *keys):
        self._tmux("send-keys", "-t", "top", *keys)

    def screen(self):
        return self._tmux("capture-pane", "-p", "-t", "top")

    def shows(self, pattern, seconds=15):
        return harness.poll_until(lambda: re.search(pattern, self.screen(), re.MULTILINE), seconds, 0.1)

    def ended(self):
        return not self._tmux("list-sessions")

    def close(self):
        self._tmux("kill-server")
        self._folder.cleanup()


def check_terminal(report, host, pids):
    terminal = Terminal(host, host.hosts.build.program, "top", "--interval", "0.5")
    steps = [
        ((), rf"^ *{pids[0]} .*ib_write_bw .*[1-9]\.?\d*[kMG] ", "a process and its rate"),
        (("l",), r"^LINK +NETDEV .*\n *rxe_\S+ +\S+ +up ", "links"),
        (("u",), r"^QP +TYPE .*\n(.*\n)*0x[0-9a-f]+ +RC +RTS ", "queue pairs"),
        (("s", "s"), r"by retransmissions", "another order"),
        (("r",), r"least first", "the other way round"),
        (("/", "nobody", "Enter"), r"only 'nobody'(?![\s\S]*0x)", "a filter that nothing passes"),
        (("/", "Enter"), r"0x[0-9a-f]+ +RC", "no filter"),
        (("h",), r"least|by the next: bytes", "help"),
        (("x",), r"0x[0-9a-f]+ +RC", "the table again"),
        (("+",), r"every 1\.0 s", "another interval"),
    ]
    for keys, pattern, what in steps:
        terminal.send(*keys)
        if not terminal.shows(pattern):
            report.append(f"top, after {keys}: {what} is not shown:\n{terminal.screen()}")
    terminal.send("q")
    if not harness.poll_until(terminal.ended, 10):
        report.append("top does not end at q")
    terminal.close()


def http(host, request):
    """Sends these bytes to the server from the host's namespace; returns the answer."""
    program = ("import socket, sys; s = socket.create_connection(('127.0.0.1', %d)); s.sendall(sys.stdin.buffer.read()); "
               "sys.stdout.buffer.write(b''.join(iter(lambda: s.recv(65536), b'')))" % PORT)
    return subprocess.run([*host.enter(), sys.executable, "-c", program], input=request, capture_output=True, timeout=30,
                          check=False).stdout.decode()


def check_metrics(report, host, pids):
    status, once = host.command("metrics")
    wanted = [r"^verbena_agent_up 1$", rf'^verbena_process_queue_pairs{{pid="{pids[0]}",program="ib_write_bw",.*type="RC",state="RTS"}} 1$',
              r'^verbena_port_transmitted_bytes_total{device="rxe_lo",port="1"} [1-9]\d+$']
    for pattern in wanted:
        if status != 0 or not re.search(pattern, once, re.MULTILINE):
            report.append(f"verbena metrics: {status}, no {pattern} in\n{once}")
    server = host.verbena("metrics", "--listen", f"127.0.0.1:{PORT}")
    if not harness.poll_until(lambda: server.listens(PORT), 10):
        report.append(f"verbena metrics --listen: {server.output}")
    answer = http(host, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    sums = r'^verbena_process_queue_pairs{device="rxe_lo",type="RC",state="RTS"} [1-9]'
    if not answer.startswith("HTTP/1.1 200 OK\r\n") or not re.search(sums, answer, re.MULTILINE) or "ib_write_bw" in answer:
        report.append(f"over HTTP: {answer}")
    if not http(host, b"DELETE / HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 405"):
        report.append("what is not GET is not refused")
    server.kill()


def check_agents_server(report, host):
    """With `verbena agent --metrics`, the metrics server must end with the agent."""
    agent = host.verbena("agent", "--metrics", f"127.0.0.1:{PORT}")
    if not harness.poll_until(lambda: agent.listens(PORT) and "verbena_agent_up 1" in http(host, b"GET /metrics HTTP/1.1\r\n\r\n"), 20, 0.5):
        report.append(f"verbena agent --metrics: {agent.output}")
    agent.kill(harness.signal.SIGTERM)
    agent.wait(10)
    if not harness.poll_until(lambda: not harness.sh("ip", "netns", "pids", host.namespace).split(), 10):
        report.append("the agent has ended, and its server of metrics has not")


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "tmux", "ib_write_bw")
    report = []
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        port = hosts.port()
        server = host.verbena("run", "ib_write_bw", "-p", port, "-D", "100")
        harness.poll_until(lambda: server.listens(port), 20)
        client = host.verbena("run", "ib_write_bw", "-p", port, "-D", "100", "127.0.0.1")
        if not harness.poll_until(lambda: len([qp for process in host.status()["processes"] for qp in process["queue_pairs"]
                                               if qp["state"] == "RTS" and qp["counters"]["sent_bytes"]]) >= 1, 30, 0.2):
            sys.exit(f"ib_write_bw does not run:\n{server.output}{client.output}")
        check_terminal(report, host, [client.pid])
        status, table = host.command("top", "--by", "process")  # not a terminal
        if status != 0 or not re.search(rf"^ *{client.pid} .*ib_write_bw", table, re.MULTILINE):
            report.append(f"top without a terminal: {status}\n{table}")
        check_metrics(report, host, [client.pid])
        for process in (server, client):
            process.kill()
        harness.poll_until(lambda: not host.agents(), 30)
        check_agents_server(report, host)
    for line in report:
        print(f"FAILED {line}")
    sys.exit(1 if report else 0)


if __name__ == "__main__":
    main()
