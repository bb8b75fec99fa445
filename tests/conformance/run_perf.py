#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `verbena perf` against Debian's perftest in both roles: each test and option, by shared memory and by wire. Both ends must
end well, print the same tables, and agree on the figures.

    run_perf.py --build build/release
    run_perf.py --build build/release --test ib_send_bw --route wire
    run_perf.py --build build/release --figures 5      the figures of ours beside Debian's, five runs of each by turns
"""

import json
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import xml.etree.ElementTree

import harness
import matrix
import own_programs

LATENCY = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat")
BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
PAIRS = ("od", "do", "oo")
MEBIBYTE = 1048576

# Options for both ends. The first line of a test is also run by wire.
LINES = {
    "ib_send_lat": ["", "-c UC", "-c UD -s 1024", "-s 1", "-s 4K -n 100", "-a -n 50", "-c UD -a -n 50", "-e", "-D 2 -f 0", "-Q 4", "-r 16",
                    "--use-srq", "-g --ipv6 -s 512", "-m 256 -s 1000", "-I 64", "--latency_gap=10 -n 100", "-u 16 -S 2", "--ipv6", "-R", "-z", "-R -c UD -s 512", "-c XRC"],
    "ib_write_lat": ["", "-R", "-c UC", "-s 1", "-a -n 50", "-D 2 -f 0", "-m 512 -s 1000", "-I 64", "-c XRC -a -n 50"],
    "ib_read_lat": ["", "-z", "-s 64", "-a -n 50", "-e", "-D 2 -f 0", "-o 1", "-c XRC"],
    "ib_atomic_lat": ["", "-R", "-A CMP_AND_SWAP", "-e", "-D 2 -f 0", "-c XRC"],
    "ib_send_bw": ["", "-c UC -s 2048", "-c UD -s 1024", "-a -n 100", "-b", "-b -a -n 50", "-b -c UC -s 1000", "-q 4", "-b -q 3", "-e", "-D 2 -f 0",
                   "-b -D 2 -f 0", "-Q 10 -s 64", "-l 10 -s 64", "-l 40 -Q 20 -n 400", "-N", "-n 30000 -s 16", "-r 16 -t 16", "--use-srq -q 2",
                   "--report_gbits", "--report_gbits -s 2 -n 100", "-I 64 -s 64", "-s 1M -n 20", "--mr_per_qp -q 2", "--reversed", "-R -b -q 3",
                   "-R -c UD -s 512", "--recv_post_list=8 -b", "--recv_post_list=10 --use-srq -q 2 -r 64", "--recv_post_list=20 -c UD -s 1024", "-g --ipv6 -s 1024 -n 100",
                   "-c XRC -e", "-c XRC -b -q 3", "-c XRC -q 4 -I 64 -s 64 -l 10 --recv_post_list=4"],
    "ib_write_bw": ["", "-c UC -s 2048", "-a -n 100", "-b", "-b -a -n 50", "-q 4", "-b -q 3", "-D 2 -f 0", "-b -D 2 -f 0", "-Q 10 -s 64",
                    "-l 10 -s 64", "-N", "--perform_warm_up", "-s 2", "--mr_per_qp -q 2", "-b --report-both", "--reversed",
                    "--rate_limit=1 --rate_limit_type=SW -n 200", "-c XRC -q 4", "-c XRC -b -q 2 --mr_per_qp"],
    "ib_read_bw": ["", "-R -q 2", "-a -n 100", "-b", "-q 4", "-e", "-D 2 -f 0", "-o 1", "-l 10 -s 64", "-s 2", "-c XRC -q 2 -D 1 -f 0", "-c XRC -b"],
    "ib_atomic_bw": ["", "-A CMP_AND_SWAP", "-b", "-q 4", "-D 2 -f 0", "-o 4", "-l 10", "-c XRC"],
}


def rows(text):
    """The tables' rows of numbers."""
    return [[float(word) for word in line.split()] for line in text.splitlines() if re.match(r" \d", line)]


class Ended:
    """A finished end: its tables as rows of numbers, and the labels of the lines before them."""

    def __init__(self, run):
        self.run = run
        self.rows, self.labels = rows(run.stdout), []
        for line in run.stdout.splitlines():
            if not re.match(r" \d", line) and (match := re.match(r" ?([#\w][^:]*?) *[:\[]", line)):
                label = match.group(1).strip()
                if label != "WARNING":  # perftest 25 warns of a missing peak in each ib_send_bw
                    self.labels.append(label)

    def good(self):
        return self.run.status == 0


def start(host, side, test, words, environment):
    name, words = (test, words) if side == "d" else ("perf", [test, *words])
    return own_programs.Run(host, side, name, words, environment=environment)


@harness.repeats_if_clock_disturbed(lambda ends: "".join(each.run.report() for each in ends))
def pair(server, client, sides, test, words, environment, server_words=(), client_words=()):
    port = server.hosts.port()
    serving = start(server, sides[0], test, ["-p", port, *words, *server_words], environment)
    by_cm = {"-R", "-z"}.intersection(words)  # librdmacm's listeners are no sockets, and clients try again
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 1 if by_cm else 20)
    calling = start(client, sides[1], test, ["-p", port, *words, *client_words, server.ipv4], environment)
    calling.finish(200 if "-a" in words else 60)
    serving.finish(10 if calling.status == 0 else 2)
    return Ended(serving), Ended(calling)


def sizes(test, words):
    """The sizes that a test must have measured, or None if any are right."""
    if "-a" not in words:
        return None
    last = 10 if "UD" in words else 23
    return [2**power for power in range(1, last + 1)]


def wrong_rows(test, words, ended):
    measuring = ended[1] if "--reversed" not in words or "_lat" in test else ended[0]
    if not measuring.rows:
        return "no figures"
    wanted = sizes(test, words)
    if wanted and [row[0] for row in measuring.rows] != wanted:
        return f"sizes {[row[0] for row in measuring.rows]}"
    for row in measuring.rows:
        if any(figure < 0 for figure in row) or row[1] == 0:
            return f"figures {row}"
    if test.endswith("_bw"):
        return wrong_bandwidth(test, words, measuring, ended)
    for row in measuring.rows:
        if len(row) == 9 and not row[2] <= row[4] <= row[7] <= row[8] <= row[3]:
            return f"latencies {row}"
    return None


def agree(words, row):
    """Whether the average bandwidth of a row is that of its messages."""
    unit = 125000000 if "--report_gbits" in words else MEBIBYTE
    size, _, _, average, rate = row[:5]
    return abs(size * rate * 1e6 / unit - average) <= max(0.02 * average, 0.02)


def wrong_bandwidth(test, words, measuring, ended):
    for row in measuring.rows:
        if not agree(words, row):
            return f"bandwidth {row[3]} with {row[4]} million messages of {row[0]} bytes"
    # Both ends of a one-sided test print the client's figures. With -b and -D each counts its own messages.
    counts_own = "-b" in words and "-D" in words
    if test not in ("ib_send_bw", "raw_ethernet_bw") and "-a" not in words and not counts_own and ended[0].rows[:1] != ended[1].rows[:1]:
        return f"the ends differ: {ended[0].rows}, {ended[1].rows}"
    return None


def wrong(test, words, sides, ended, labels):
    problem = None
    if not all(each.good() for each in ended):
        problem = "a bad end"
    else:
        problem = wrong_rows(test, words, ended)
    for each, side, expected in zip(ended, sides, labels or (None, None)):
        if not problem and side == "o" and expected is not None and each.labels != expected:
            problem = f"other lines: {set(expected) ^ set(each.labels)}"
    return f"{problem}\n" + "\n".join(each.run.report() for each in ended) if problem else None


def check(judge, server, client, test, line, route, with_labels):
    words, environment = line.split(), harness.ROUTES[route]
    where = f"on {'one host' if server is client else 'two hosts'} by {route}"
    expected = None
    if with_labels:  # Debian's with itself prints the lines that ours must print
        both = pair(server, client, "dd", test, words, environment)
        expected = tuple(each.labels for each in both)
    for sides in PAIRS:
        ended = pair(server, client, sides, test, words, environment)
        judge.say(f"{test} {line} {sides} {where}", wrong(test, words, sides, ended, expected))


def check_json(judge, host):
    for test in LATENCY + BANDWIDTH:
        for words in ([], ["-D", "2", "-f", "0"]):
            ended = pair(host, host, "oo", test, ["--json", *words], {})
            try:
                report = json.loads(ended[1].run.stdout)
                result = report["results"][0]
                good = report["test"] == test and result["average"] > 0 and result["processor_usec_per_message"] > 0
                if test.endswith("_lat"):
                    steps = [result[f"p{each}"] for each in ("50", "90", "99", "99.9", "99.99", "99.999")]
                    good = good and steps == sorted(steps) and sum(count for _, count in result["histogram"]) > 0
            except (ValueError, KeyError, IndexError):
                good = False
            judge.say(f"{test} --json {' '.join(words)}", None if good and ended[1].good() else ended[1].run.report())


def check_out_json(judge, host):
    """The file of --out_json is JSON with the names of perftest's file, in its order, and the figures of the table's last row."""
    for test, line in (("ib_send_lat", ""), ("ib_read_lat", "-D 2 -f 0 --cpu_util"), ("ib_write_bw", "-a -n 50"), ("ib_atomic_bw", "-e"),
                       ("ib_send_bw", "-D 2 -f 0 --cpu_util -l 10 -s 64"), ("ib_send_bw", "-b")):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder).chmod(0o777)
            texts = {}
            for sides in ("dd", "oo"):
                files = [pathlib.Path(folder, sides + end) for end in ("server", "client")]
                ended = pair(host, host, sides, test, line.split(), {}, *(["--out_json", f"--out_json_file={file}"] for file in files))
                texts[sides] = files[1].read_text() if files[1].exists() else ""
        names = {sides: [name for name in re.findall(r'^ *"?([A-Z]?\w[\w. ]*?)"? ?:', text, re.MULTILINE)
                         if not name.startswith(("Use_", "WARNING"))] for sides, text in texts.items()}
        try:
            report = json.loads(texts["oo"])
            figures = list(report["results"].values())
            good = names["dd"] == names["oo"] and len(names["oo"]) > 20 and all(abs(found - shown) < 0.006 for found, shown in zip(figures, ended[1].rows[-1]))
        except (ValueError, KeyError, IndexError):
            good = False
        judge.say(f"{test} {line} --out_json", None if good and ended[1].good() else f"{names}\n{texts}\n{ended[1].run.report()}")


def check_endless(judge, host):
    """--run_infinitely prints rows until it is interrupted. Our other end then ends, too."""
    for test, line in (("ib_send_bw", ""), ("ib_write_bw", ""), ("ib_write_bw", "-b"), ("ib_read_bw", "-q 2"), ("ib_atomic_bw", "")):
        for sides in PAIRS:
            port = host.hosts.port()
            words = ["-p", port, "--run_infinitely", "-D", "1", "-f", "0", *line.split()]
            serving = start(host, sides[0], test, words, {})
            harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
            calling = start(host, sides[1], test, [*words, host.ipv4], {})
            measuring = (serving, calling) if test == "ib_send_bw" or line == "-b" else (calling,)
            grown = harness.poll_until(lambda: all(len(rows(each.said(0))) > 1 for each in measuring), 20, step=0.1)
            calling.process.send_signal(signal.SIGINT)
            calling.finish(5)
            serving.finish(10 if sides[0] == "o" else 0)
            # perftest 4.5 is killed by the signal. Later versions end the test in good order, and so does our other end.
            killed = calling.status == -signal.SIGINT and (sides[0] == "d" or (serving.status == 1 and "peer" in serving.stderr))
            in_order = sides[1] == "d" and calling.status == 0 and (sides[0] == "d" or serving.status == 0)
            good = grown and (killed or in_order)
            wrong_row = [row for each in measuring for row in rows(each.stdout) if len(row) != 5 or not agree([], row)]
            judge.say(f"{test} {line} --run_infinitely {sides}", None if good and not wrong_row else f"{wrong_row}\n{calling.report()}{serving.report()}")


def check_multicast(judge, server, client):
    """Both ends of a latency test have a group. Ours also sends from a GID of IPv4 to perftest's group, an address of IPv6."""
    far, near = matrix.group("ff05::4791"), matrix.group("ff05::4792")
    for sides in PAIRS:
        for test, words, *own_words in (("ib_send_bw", ["--ipv6", "-M", far]), ("ib_send_bw", ["-M", matrix.group("::ffff:239.47.91.1")]),
                                        ("ib_send_lat", ["--ipv6"], ["-M", far], ["-M", near])):
            words = ["-g", "-s", "1024", "-n", "100", *words]  # so few fit into a socket's buffer: a group has no flow control
            expected = [each.labels for each in pair(server, client, "dd", test, words, {}, *own_words)] if sides == "oo" else None
            ended = pair(server, client, sides, test, words, {}, *own_words)
            judge.say(f"{test} {' '.join(words)} {sides} on two hosts", wrong(test, words, sides, ended, expected))
    ended = pair(server, server, "oo", "ib_send_bw", ["-g", "-s", "1024", "-n", "100"], {})
    judge.say("ib_send_bw -g from IPv4", wrong("ib_send_bw", [], "oo", ended, None))
    ended = pair(server, client, "oo", "ib_send_lat", ["-g", "-M", "ff05::4791"], {})
    good = all(each.run.status == 1 and "different groups" in each.run.stderr for each in ended)
    judge.say("ib_send_lat with one group is refused", None if good else ended[0].run.report())


def check_clients(judge, host):
    """A server of several clients, of which one is Debian's, shows each and their sum. A client that fails does not disturb the others."""
    for test, line in (("ib_send_bw", "-a -n 50"), ("ib_send_bw", "-b -q 2"), ("ib_write_bw", ""), ("ib_read_bw", "-D 1 -f 0")):
        serving, calling = crowd(host, test, line.split(), ("o", "o", "d"))
        shown = rows(serving.stdout)
        each = len(shown) // 4
        sums = [[sum(client) for client in zip(*(shown[i][3:] for i in range(k, 3 * each, each)))] for k in range(each)]
        good = each == (23 if "-a" in line else 1) and all(run.status == 0 for run in (serving, *calling))
        good = good and all(abs(found - wanted) < 0.03 for k in range(each) for found, wanted in zip(shown[3 * each + k][3:], sums[k]))
        judge.say(f"{test} {line} --clients", None if good else "\n".join(run.report() for run in (serving, *calling)))
    serving, calling = crowd(host, "ib_write_bw", ["--json"], ("o", "o"))
    try:
        report = json.loads(serving.stdout)
        good = len(report["clients"]) == 2 and report["sum"][0]["iterations"] == 10000
    except (ValueError, KeyError, IndexError):
        good = False
    judge.say("--clients --json", None if good else serving.report())
    serving, calling = crowd(host, "ib_write_bw", [], ("o", "o"), ["--sweep=qps"])
    good = [run.status for run in (serving, *calling)] == [1, 0, 1] and ": --clients: it has a sweep" in serving.stderr and len(rows(serving.stdout)) == 2
    judge.say("--clients with a sweep", None if good else "\n".join(run.report() for run in (serving, *calling)))


def crowd(host, test, words, sides, last_words=()):
    """Runs a server of ours with as many clients as there are sides. `last_words`: options of the last client only."""
    port = host.hosts.port()
    serving = start(host, "o", test, ["-p", port, f"--clients={len(sides)}", *words], {})
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    calling = [start(host, side, test, ["-p", port, *words, *(last_words if i + 1 == len(sides) else ()), host.ipv4], {}) for i, side in enumerate(sides)]
    for each in calling:
        each.finish(60)
    return serving.finish(10), calling


def check_verify(judge, host):
    """Good data passes --verify. Data of a peer without the option does not."""
    lines = {"ib_send_lat": "-n 500", "ib_write_lat": "-a -n 5", "ib_read_lat": "-s 5000 -n 50", "ib_atomic_lat": "", "ib_send_bw": "-b -q 2 -s 300",
             "ib_write_bw": "-b -q 2 -s 300", "ib_read_bw": "-a -n 20", "ib_atomic_bw": "-q 3"}
    for test, line in lines.items():
        ended = pair(host, host, "oo", test, ["--verify", *line.split()], {})
        judge.say(f"{test} {line} --verify", None if all(each.good() for each in ended) else "\n".join(each.run.report() for each in ended))
    port = host.hosts.port()
    serving = start(host, "o", "ib_send_bw", ["-p", port, "--verify"], {})
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    calling = start(host, "o", "ib_send_bw", ["-p", port, host.ipv4], {})
    serving.finish(30)
    calling.finish(30)
    judge.say("--verify finds other data", None if serving.status == 1 and "--verify: message of queue pair 0" in serving.stderr else serving.report())


def check_sweep(judge, host):
    """A sweep runs all combinations with a server of ours, which needs no option for it, and names the reason with perftest's programs."""
    lines = {"ib_send_bw": ("sizes=64-512,qps=1/3,depths=4/64", 16), "ib_write_bw": ("sizes=2/64K,qps=2", 2), "ib_read_lat": ("sizes=2-64", 6),
             "ib_atomic_bw": ("depths=1-8", 4), "ib_send_lat": ("sizes", 23)}
    for test, (sweep, count) in lines.items():
        served, ended = sweep_pair(host, "oo", test, [], [f"--sweep={sweep}", "--json", "-n", "200"])
        try:
            rows = json.loads(ended.stdout)["results"]
            points = {(row["bytes"], row["queue_pairs"], row["send_depth"]) for row in rows}
            good = len(rows) == len(points) == count and all(row["average"] > 0 for row in rows)
        except (ValueError, KeyError):
            good = False
        judge.say(f"{test} --sweep={sweep}", None if good and ended.status == served.status == 0 else ended.report() + served.report())
    served, ended = sweep_pair(host, "oo", "ib_send_bw", [], ["--sweep=sizes", "-c", "UD", "-n", "50"])
    sizes_shown = [row[0] for row in Ended(ended).rows]
    judge.say("a table of a sweep", None if sizes_shown == sizes("ib_send_bw", ["-a", "UD"]) and ended.status == 0 else ended.report() + served.report())
    served, ended = sweep_pair(host, "do", "ib_send_bw", [], ["--sweep=sizes"])
    judge.say("--sweep refuses perftest's server", None if ended.status == 1 and "perftest's programs run one test only" in ended.stderr else ended.report())
    served, ended = sweep_pair(host, "od", "ib_send_bw", ["--sweep=sizes"], [])
    judge.say("--sweep refuses perftest's client", None if served.status == 1 and "the client has none" in served.stderr else served.report())


def check_plots(judge, host):
    """--plot draws in the terminal, or writes an SVG file that is well-formed XML."""
    for test, words, label in (("ib_send_lat", ["-n", "2000"], "latency [usec]"), ("ib_write_bw", ["-a", "-n", "50"], "message rate [million/s]"),
                               ("ib_send_bw", ["--sweep=qps,depths=1-4", "-s", "64"], "bandwidth [MiB/s]")):
        served, ended = sweep_pair(host, "oo", test, [] if "--sweep" in words[0] else words, ["--plot", *words])
        drawn = label in ended.stdout and any("\u2801" <= each <= "\u28ff" for each in ended.stdout) and "\x1b" not in ended.stdout
        judge.say(f"{test} {' '.join(words)} --plot", None if drawn and ended.status == 0 else ended.report() + served.report())
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o777)
        file = pathlib.Path(folder, "chart.svg")
        served, ended = sweep_pair(host, "oo", "ib_read_lat", [], ["--plot", file, "--json", "--sweep=sizes=2-64"])
        texts = {each.text for each in xml.etree.ElementTree.parse(file).iter()} if file.exists() else set()
        good = {"message size", "latency [usec]", "64 B", "p99.9"} <= texts and json.loads(ended.stdout)["results"]
        judge.say("--plot FILE.svg", None if good and ended.status == 0 else f"{texts}\n{ended.report()}")
    served, ended = sweep_pair(host, "oo", "ib_send_bw", [], ["--plot"])
    judge.say("--plot of one figure is refused", None if ended.status == 1 and "-a or --sweep" in ended.stderr else ended.report())


def is_running(pid):
    """False also for a zombie: a container's first process need not collect processes whose parents have ended."""
    try:
        return pathlib.Path("/proc", pid, "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_suite(judge, host, other):
    """The suite writes a page about this host and about the way to a peer, leaves no process, and names a peer that cannot serve."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o777)
        page = pathlib.Path(folder, "page.html")
        words = ["suite", "--quick", "--seconds", "4", "--json", "-o", page]
        port = host.hosts.port()
        serving = start(other, "o", "suite", ["--serve", "-p", port], {})
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        for peer, route in (([], "shared memory"), (["-p", port, other.ipv4], "wire between two network namespaces of one host")):
            ended = own_programs.run(host, "o", "perf", [*words, *peer], seconds=90)
            try:
                suite = json.loads(ended.stdout)
                text = page.read_text()
                good = suite["route"] == route and len(suite["tests"]) == 14 and text.count("<svg") == 5 and "ib_atomic_bw" in text
                # On a busy machine, a size may have no message within its share of the time.
                good = good and all(any(row["iterations"] for row in test["results"]) for test in suite["tests"] if test["connection"] == "RC")
                page.unlink()
            except (ValueError, KeyError, OSError):
                good = False
            judge.say(f"perf suite by {route}", None if good and ended.status == 0 else ended.report())
        serving.process.terminate()
        serving.finish(10)
        port = host.hosts.port()
        serving = start(host, "d", "ib_send_lat", ["-p", port], {})
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        ended = own_programs.run(host, "o", "perf", [*words, "-p", port, host.ipv4])
        serving.finish(10)
        judge.say("perf suite refuses perftest's server", None if ended.status == 1 and "no verbena perf" in ended.stderr and not page.exists() else ended.report())
        for number in (signal.SIGTERM, signal.SIGKILL):
            running = own_programs.Run(host, "o", "perf", words)
            harness.poll_until(lambda: "ib_send_lat" in running.said(1) or not running.running(), 20)
            children = pathlib.Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
            running.process.send_signal(number)
            running.finish(10)
            gone = harness.poll_until(lambda: not any(map(is_running, children)), 5)
            judge.say(f"perf suite ended by {number.name}", None if children and gone and not page.exists() else f"{children}\n{running.report()}")


def check_killed_end(judge, host):
    """If one end of a sweep is killed, the other ends, too."""
    for victim in (0, 1):
        port = host.hosts.port()
        serving = start(host, "o", "ib_send_lat", ["-p", port], {})
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        calling = start(host, "o", "ib_send_lat", ["-p", port, "--sweep=sizes", "-D", "2", host.ipv4], {})
        harness.poll_until(lambda: re.search(r"^ 2 ", calling.said(0), re.MULTILINE) or not calling.running(), 20)
        both = (serving, calling)
        both[victim].process.kill()
        other = both[1 - victim].finish(20)
        both[victim].finish(5)
        judge.say(f"a sweep whose {('server', 'client')[victim]} is killed", None if other.status == 1 and "peer" in other.stderr else other.report())


def sweep_pair(host, sides, test, server_words, client_words):
    port = host.hosts.port()
    serving = start(host, sides[0], test, ["-p", port, *server_words], {})
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    calling = start(host, sides[1], test, ["-p", port, *client_words, host.ipv4], {})
    calling.finish(120)
    return serving.finish(10), calling


def check_refusals(judge, host):
    for words in (["ib_nosuch"], [], ["ib_read_bw", "-c", "UD"], ["ib_send_bw", "-O"], ["ib_send_lat", "-n", "x"], ["ib_send_lat", "-d", "nosuch"],
                  ["ib_send_lat", "-x", "200"], ["ib_send_bw", "--sweep=speed"], ["ib_send_lat", "--sweep=qps"],
                  ["ib_send_bw", "--sweep=sizes", "-a"], ["ib_send_lat", "127.0.0.1", "-p", "1"]):
        run = own_programs.run(host, "o", "perf", words, seconds=20)
        judge.say(f"perf {' '.join(words)} is refused", None if run.status == 1 and run.stderr and not run.stdout else run.report())


def figure(ended, test):
    row = ended[1].rows[-1]
    return row[4] if test.endswith("_lat") else row[3]  # typical latency, average bandwidth


def show_figures(host, route, repeat, tests):
    """Prints the medians of ours and of Debian's, which run by turns."""
    environment = harness.ROUTES[route]
    print(f"{'by ' + route:16}{'Debian':>12}{'ours':>12}")
    for test in tests:
        # With 5,000 messages a bandwidth test ends within 40 ms, and one start of a program differs from the next by a factor of two.
        words = ["-n", "20000"] if test.endswith("_lat") else ["-n", "100000"]
        found = {sides: [] for sides in ("dd", "oo")}
        for _ in range(repeat):
            for sides, figures in found.items():
                ended = pair(host, host, sides, test, words, environment)
                if ended[1].rows:
                    figures.append(figure(ended, test))
        theirs, ours = (statistics.median(figures) for figures in found.values())
        print(f"{test:16}{theirs:12.2f}{ours:12.2f}  {(ours / theirs - 1) * 100:+5.1f} %", flush=True)


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--test", choices=LINES, action="append", help="only this test; may be given again")
    parser.add_argument("--figures", type=int, default=0, metavar="N", help="print figures of N runs each, and check nothing")
    harness.add_route_option(parser)
    harness.add_share_options(parser)
    options = harness.begin(parser, "ip", "setpriv", *LINES)
    tests = options.test or list(LINES)

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host, other = hosts.two()
        if options.figures:
            show_figures(host, options.route, options.figures, tests)
            return
        for case in harness.share_of([harness.Shared(test, (test, line)) for test in tests for line in LINES[test]],
                                     options.share, options.every):
            test, line = case.case
            check(judge, host, host, test, line, options.route, with_labels=line == LINES[test][0])
            if line == LINES[test][0]:
                check(judge, host, other, test, line, options.route, with_labels=False)
        if not options.test:
            check_json(judge, host)
            check_out_json(judge, host)
            check_endless(judge, host)
            check_clients(judge, host)
            check_multicast(judge, host, other)
            check_verify(judge, host)
            check_sweep(judge, host)
            check_killed_end(judge, host)
            check_plots(judge, host)
            check_suite(judge, host, other)
            check_refusals(judge, host)
    judge.exit()


if __name__ == "__main__":
    sys.exit(main())
