#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Verbena's ibv_devices, ibv_devinfo, ibv_asyncwatch and pingpongs with Debian's: output, error messages and exit
statuses for the same command lines. Each also runs with the other as its peer. Further checks: --json, and strangers that
connect to the TCP port.

    run_own_programs.py --build build/release
"""

import json
import re
import subprocess
import sys

import harness
import own_programs

PINGPONGS = ("rc", "uc", "ud", "srq", "xsrq")
ALWAYS = ("program", "transport", "role", "tcp_port", "device", "ib_port", "gid_index", "size", "events", "local", "remote", "iterations", "bytes",
          "seconds", "mbit_per_second", "usec_per_iteration")

# Command lines that need no peer. Wrong ones come first.
ALONE = {
    "ibv_devices": ["", "somewhere"],
    "ibv_devinfo": ["-z", "--nosuch", "-d", "-d nosuch", "-i 0", "-i word", "-i 77", "--ib", "-l -z", "", "-v", "-l", "--list", "--verb", "-vi 1",
                    "-d {device}", "-vd {device} -i 1", "--ib-dev={device}", "{device}"],
    "ibv_asyncwatch": ["-z", "-h", "--help", "--nosuch", "-d", "-d nosuch"],
}
EACH_PINGPONG = ["-z", "--nosuch", "-p", "-p 70000", "-p -1", "-d nosuch", "--s", "one two", "-p 1 127.0.0.1", "-p 1 nosuch.invalid"]
PINGPONGS_ALONE = {
    "rc": ["-m 1000", "-i 0", "-i 9", "-g 5000", "-P", "-oj", "-oP -j", "--chk=1", "-q 3", "-j -s 100000000"],
    "uc": ["-m 1000", "-i 0", "-i 9", "-g 5000", "-t", "-o"],
    "ud": ["-m 1024", "-i 0", "-g 5000", "-s 5000", "-N"],
    "srq": ["-m 1000", "-i 0", "-i 9", "-g 5000", "-s 0", "-q 10 -r 5", "-q 300 -r 400", "-t"],
    "xsrq": ["-m 1000", "-i -1", "-i 9", "-r 5", "-t"],
}
# Command lines for two ends. The first of each is also run between two hosts.
TOGETHER = {
    "rc": ["", "-e", "-t", "-c", "-c -s 20000", "-o", "-O", "-o -P", "-j", "-j -c", "-N", "-N -e", "-s 1", "-s 0", "-s 100000 -n 100", "-m 512",
           "-m 0x100", "-r 1", "-r 10 -n 95", "-n 1", "-l 3", "--iters=50 --si=100", "-d {device} -i 1"],
    "uc": ["", "-e", "-c", "-s 1", "-s 20000 -n 100", "-m 512", "-r 10 -n 95", "-n 1", "-l 3"],
    "ud": ["", "-e", "-c", "-s 1", "-s 1024", "-r 10 -n 95", "-n 1", "-l 3"],
    "srq": ["", "-e", "-c", "-o", "-q 1", "-q 255", "-q 8 -r 8", "-s 1", "-m 512", "-n 1"],
    "xsrq": ["", "-e", "-o", "-s 1", "-m 512", "-n 1", "-n 100", "-l 3"],
}


def check_alone(judge, host, device):
    cases = [(name, line) for name, lines in ALONE.items() for line in lines]
    cases += [(f"ibv_{which}_pingpong", line) for which in PINGPONGS for line in EACH_PINGPONG + PINGPONGS_ALONE[which]]
    for name, line in cases:
        words = line.format(device=device).split()
        ours, theirs = (own_programs.run(host, side, name, words, seconds=10) for side in "od")
        judge.say(f"{name} {line}", own_programs.difference(ours, theirs))


def wrong_pair(ended, expected, words):
    for run, other in zip(ended, expected):
        if run.side == "o" and (wrong := own_programs.difference(run, other)):
            return wrong
    if any(run.status != expected[0].status for run in ended):
        return "\n".join(run.report() for run in ended)
    if "-c" in words and "invalid data" in "".join(run.stdout for run in ended):
        return ended[0].report()
    return None


def check_together(judge, server, client, which, line, gid_index, device):
    """Ours with Debian's must behave like Debian's with itself."""
    name, words = f"ibv_{which}_pingpong", ["-g", gid_index, *line.format(device=device).split()]
    expected = own_programs.pair(server, client, "dd", name, words)
    for sides in own_programs.PAIRS:
        ended = own_programs.pair(server, client, sides, name, words)
        judge.say(f"{name} {line} {sides} on {'one host' if server is client else 'two hosts'}", wrong_pair(ended, expected, words))


def check_clients(judge, host, gid_index):
    """Two clients of one server, which answers each through the queue pairs of the other."""
    for sides in own_programs.PAIRS:
        ended = own_programs.pair(host, host, sides, "ibv_xsrq_pingpong", ["-g", gid_index, "-n", 20], server_words=["-c", 2], clients=2)
        wrong = any(run.status != 0 or not run.stdout.endswith("success\n") for run in ended)
        judge.say(f"ibv_xsrq_pingpong -c 2 {sides}", "\n".join(run.report() for run in ended) if wrong else None)


def check_events_with_timestamps(judge, host, gid_index):
    """Ours supports -t with -e. Debian's cannot: it treats an event without completions as a failure."""
    for words in ("-t -e", "-t -e -N"):
        ended = own_programs.pair(host, host, "oo", "ibv_rc_pingpong", ["-g", gid_index, *words.split()])
        good = all(run.status == 0 and "Average receive completion clock cycles" in run.stdout for run in ended)
        judge.say(f"ibv_rc_pingpong {words} oo", None if good else "\n".join(run.report() for run in ended))


def json_of(run):
    try:
        return json.loads(run.stdout)
    except ValueError:
        return None


def check_json(judge, host, gid_index):
    extra = {"rc": ["-t", "-c"], "srq": ["-q", "3"]}
    for which in PINGPONGS:
        ended = own_programs.pair(host, host, "oo", f"ibv_{which}_pingpong", ["-g", gid_index, "-n", 30, "--json", *extra.get(which, [])])
        for run, role in zip(ended, ("server", "client")):
            judge.say(f"ibv_{which}_pingpong --json of the {role}", wrong_figures(json_of(run), run, role, which))
    for words in ([], ["-v"], ["-l"], ["--json", "-l"]):
        run = own_programs.run(host, "o", "ibv_devinfo", [*words, "--json"])
        judge.say(f"ibv_devinfo {' '.join(words)} --json", wrong_devices(json_of(run), run, words))
    run = own_programs.run(host, "o", "ibv_devices", ["--json"])
    listed = json_of(run)
    judge.say("ibv_devices --json", None if listed and re.fullmatch(r"[0-9a-f]{16}", listed["devices"][0]["node_guid"]) else run.report())
    run = own_programs.run(host, "o", "ibv_rc_pingpong", ["--json", "-d", "nosuch"])
    judge.say("a failure prints no object", None if (run.status, run.stdout) == (1, "") and "nosuch" in run.stderr else run.report())


def wrong_figures(figures, run, role, which):
    if figures is None or run.status != 0:
        return f"no object\n{run.report()}"
    if missing := set(ALWAYS) - set(figures):
        return f"no {missing}\n{run.report()}"
    count = {"srq": 3}.get(which, 1)
    good = (figures["role"] == role and figures["iterations"] == 30 and figures["bytes"] == 2 * 30 * figures["size"]
            and len(figures["local"]) == len(figures["remote"]) == count and figures["seconds"] > 0
            and abs(figures["usec_per_iteration"] * 30e-6 / figures["seconds"] - 1) < 1e-6
            and (which != "rc" or figures["receive_clock_cycles"]["max"] >= figures["receive_clock_cycles"]["average"]))
    if which == "rc" and role == "server" and figures.get("invalid_pages") != []:
        good = False
    return None if good else run.report()


def wrong_devices(listed, run, words):
    if listed is None or run.status != 0:
        return f"no object\n{run.report()}"
    device = listed["devices"][0]
    if "-l" in words:
        return None if set(device) == {"name"} else run.report()
    port = device["ports"][0]
    good = port["state"] == "PORT_ACTIVE" and port["link_layer"] == "Ethernet"
    if "-v" in words:
        good = good and device["max_qp"] > 0 and "XRC" in device["device_cap_flags"] and port["gids"][0]["type"] == "RoCE v2"
    return None if good else run.report()


def check_strangers(judge, host):
    """A stranger that sends no valid line, part of one, or nothing must cause an error message and nothing else."""
    line = b"0000:000001:000002:00000000000000000000000000000000\0"
    messages = {"nothing": b"", "half a line": line[:20], "no numbers": b"G" * 66, "no end": b"0" * 400, "signs": line.replace(b"000001", b"-00001"),
                "a long GID": line[:-1] + b"0" * 1000, "an unknown peer": line}
    for which in PINGPONGS:
        for what, message in messages.items():
            port = host.hosts.port()
            run = own_programs.Run(host, "o", f"ibv_{which}_pingpong", ["-p", port, "-g", 1])
            harness.poll_until(lambda run=run, port=port: run.listens(port) or not run.running(), 20)
            send_in(host, port, message)
            run.finish(10)
            judge.say(f"ibv_{which}_pingpong gets {what}", None if run.status == 1 and run.stderr else run.report())


def send_in(host, port, message):
    """Sends a message to a port of the host, from within its namespace."""
    script = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); s.sendall(bytes.fromhex(sys.argv[2]))"
    subprocess.run([*host.enter(), sys.executable, "-c", script, str(port), message.hex()], check=True, timeout=20, capture_output=True)


def check_no_server(judge, host):
    """A client whose server sends nonsense must end too."""
    for which in PINGPONGS:
        script = """if True:
            import socket
            s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
            c, _ = s.accept(); c.recv(52); c.sendall(b"x" * 20000); c.shutdown(socket.SHUT_WR)
            while c.recv(65536): pass
        """
        with subprocess.Popen([*host.enter(), sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            port = int(server.stdout.readline())
            run = own_programs.run(host, "o", f"ibv_{which}_pingpong", ["-p", port, "-g", 1, "127.0.0.1"], seconds=10)
            server.kill()
        judge.say(f"ibv_{which}_pingpong with a server that sends nonsense", None if run.status == 1 and run.stderr else run.report())


def check_watch(judge, host, form):
    """The device's events must be printed as they come, and the program must end when the device is deleted."""
    json_form = form == "--json"
    watch = own_programs.Run(host, "o", "ibv_asyncwatch", ["-d", f"rxe_{host.netdev}", *([form] if form else [])])
    harness.poll_until(lambda: host_has_open(host, watch) or not watch.running(), 20)

    def await_event(name):
        wanted = f'"event_type":"{name}"' if json_form else f"  event_type {name} ("
        return harness.poll_until(lambda: wanted in watch.said(0), 10)

    def ip(*words):
        harness.sh("ip", "-n", host.namespace, "link", "set", host.netdev, *words)

    ip("down")
    down = await_event("IBV_EVENT_PORT_ERR")
    ip("up")
    up = await_event("IBV_EVENT_PORT_ACTIVE")
    host.command("link", "delete", f"rxe_{host.netdev}")
    watch.finish(10)
    lines = watch.stdout.splitlines()
    good = down and up and watch.status == 1
    if json_form:
        good = good and all(json.loads(line)["device"] == f"rxe_{host.netdev}" for line in lines)
    else:
        good = good and re.fullmatch(rf"rxe_{host.netdev}: async event FD \d+", lines[0])
    judge.say(f"ibv_asyncwatch {form}", None if good else watch.report())


def host_has_open(host, run):
    """Whether the program has its device open, and so gets all later events."""
    return any(process["pid"] == run.process.pid for process in host.status()["processes"])


def check_where(judge, host):
    """Debian's programs come first in PATH. Without them ours are found, and find our libraries by their run path."""
    status, found = host.run("sh", "-c", "command -v ibv_devinfo")
    judge.say("Debian's come first in PATH", None if (status, found.strip()) == (0, "/usr/bin/ibv_devinfo") else found)
    script = "command -v ibv_devinfo; ibv_devinfo -l"
    status, found = host.finish(host.start(["env", "PATH=/nowhere", host.hosts.build.program, "run", "/bin/sh", "-c", script]), 20)
    good = status == 0 and found.split()[0].endswith("/programs/ibv_devinfo") and f"rxe_{host.netdev}" in found
    judge.say("ours are found after them", None if good else found)
    process = host.start([found.split()[0], "-l"])
    status, output = host.finish(process, 20)
    judge.say("they run without verbena run", None if status == 0 and f"rxe_{host.netdev}" in output else output)
    status, output = host.command("ibv_nosuch")
    judge.say("there is no other program", None if status == 2 and "ibv_nosuch" in output else output)


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--program", choices=PINGPONGS, action="append", help="only this pingpong's pairs; may be given again")
    harness.add_share_options(parser)
    options = harness.begin(parser, "ip", "setpriv", *ALONE, *(f"ibv_{which}_pingpong" for which in PINGPONGS))

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host, other = hosts.two()
        device = f"rxe_{host.netdev}"
        gid_index = host.gid_index(host.ipv4)
        pairs = [harness.Shared(which, (peer, which, line)) for which in options.program or PINGPONGS
                 for peer, lines in ((host, TOGETHER[which]), (other, TOGETHER[which][:4 if which == "rc" else 1]))
                 for line in lines]
        for pair in harness.share_of(pairs, options.share, options.every):
            peer, which, line = pair.case
            check_together(judge, host, peer, which, line, gid_index, device)
        if not options.program:
            check_alone(judge, host, device)
            check_clients(judge, host, gid_index)
            check_events_with_timestamps(judge, host, gid_index)
            check_json(judge, host, gid_index)
            check_strangers(judge, host)
            check_no_server(judge, host)
            check_where(judge, host)
            check_watch(judge, host, "")
            check_watch(judge, other, "--json")
    judge.exit()


if __name__ == "__main__":
    main()
