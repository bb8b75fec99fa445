#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's rsocket programs, and socket programs under librspreload, over Verbena: all unmodified and from Debian.

    run_rsockets.py --build build/release                      everything, once, on one host and on two
    run_rsockets.py --build build/release --repeat 100 --case rcopy
"""

import dataclasses
import filecmp
import os
import pathlib
import re
import shutil
import sys
import tempfile

import harness

PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so.1"
SEMAPHORE = pathlib.Path("/dev/shm/sem.rsocket_fork")  # librspreload's semaphore, which a killed server leaves locked
SHORT = ("-I", "20", "-C", "20")
STARTED = 20  # maximum seconds until a server listens


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    options: tuple = ()
    family: str = "ipv4"
    preload: bool = False
    fork: bool = False       # sets RDMAV_FORK_SAFE: librspreload connects after the fork
    serves_on: bool = False  # the server continues for the next client

    @property
    def name(self):
        return " ".join([self.program, *self.options, self.family] + (["preload"] if self.preload else [])
                        + (["fork"] if self.fork else []))


def rstreams():
    manners = [(), ("-T", "a"), ("-T", "b"), ("-T", "b", "-T", "a"), ("-T", "r"), ("-T", "v"), ("-T", "n", "-T", "v"),
               ("-B", "4096"), ("-k", "1"), ("-i", "0"), ("-f", "ip")]
    cases = [Case("rstream", (*SHORT, "-S", size, *manner))
             for manner in manners for size in ("1000", "65536")]
    cases += [Case("rstream", (*SHORT, "-S", "1000", *manner), "ipv6") for manner in ((), ("-T", "b", "-T", "v"))]
    return cases


def all_cases():
    cases = rstreams()
    cases += [Case("riostream", (*SHORT, "-S", size, *manner))
              for manner in ((), ("-T", "a"), ("-T", "b"), ("-T", "v")) for size in ("1000", "65536")]
    cases += [Case("riostream", (*SHORT, "-S", "1000", *manner), "ipv6") for manner in ((), ("-T", "b", "-T", "v"))]
    cases += [Case("rcopy", serves_on=True)]
    cases += [Case("udpong", ("-C", "200", "-S", size, *manner), family, serves_on=True)
              for manner in ((), ("-T", "b")) for size in ("64", "1500") for family in ("ipv4", "ipv6")]
    # An echo (-T e) that takes longer than a millisecond stops the program forever, because it reads the late one over the number
    # that it expects. So these cases use only datagrams from queue pair to queue pair.
    cases += [Case("udpong", ("-C", "200", "-S", "64", "-T", "e", *manner), family, serves_on=True)
              for manner in ((), ("-T", "a")) for family in ("ipv4", "ipv6")]
    cases += [Case("rstream", (*SHORT, "-S", "1000", "-T", "s", *manner), preload=True)
              for manner in ((), ("-T", "a"), ("-T", "b"), ("-T", "v"))]
    cases += [Case("rstream", (*SHORT, "-S", "1000", "-T", "f", "-T", "b"), preload=True, fork=True)]
    cases += [Case("udpong", ("-C", "200", "-S", "64", "-T", "s"), preload=True, serves_on=True)]
    cases += [Case("iperf3", preload=True)]
    return cases


def command(case, host, port, destination=None, copy=None):
    """The command line: a server's if there is no destination."""
    if case.program == "rcopy":
        return [case.program, *([copy[0], f"{destination}:{copy[1]}"] if destination else []), "-p", port]
    if case.program == "iperf3":
        return [case.program, "-p", port, *(["-c", destination, "-t", "1"] if destination else ["-s", "-1"])]
    side = ["-s", destination] if destination else ["-b", getattr(host, case.family)]
    return [case.program, "-p", port, *side, *case.options]


def environment_of(case):
    variables = {"LD_PRELOAD": PRELOAD} if case.preload else {}
    return {**variables, "RDMAV_FORK_SAFE": "1"} if case.fork else variables


def copied(folder):
    """The file that rcopy sends, and its destination."""
    source, target = pathlib.Path(folder) / "source", pathlib.Path(folder) / "target"
    if not source.exists():
        source.write_bytes(os.urandom(3_000_001))
    target.unlink(missing_ok=True)
    return source, target


def complaint(case, client, status, files):
    if status != 0:
        return f"client {status}"
    if case.program == "rcopy":
        return None if files[1].exists() and filecmp.cmp(*files, shallow=False) else "the copy differs"
    if case.program == "iperf3":
        return None if re.search(r"[1-9]\S* [MG]Bytes .* receiver$", client.output, re.MULTILINE) else "nothing came"
    if "verification failed" in client.output:
        return "the data differ"
    return None if re.search(r"^custom .* \d+\.\d\ds ", client.output, re.MULTILINE) else "no figures"


def was_refused(output):
    """Whether a client found nobody listening. Non-blocking programs get this as an error of rpoll()."""
    return "refused" in output or "rpoll: Operation now in progress" in output


def reads_past_preload(case, output):
    """Whether the program read its socket through a function that rdma-core's preload does not replace, which fails with any
    adapter. GCC 16 turns udpong's last recv() into __recv_chk() (_FORTIFY_SOURCE), which then reads /dev/null instead of the
    rsocket."""
    return case.preload and "Socket operation on non-socket" in output and \
        b"__recv_chk" in pathlib.Path(shutil.which(case.program)).read_bytes() and \
        b"__recv_chk" not in pathlib.Path(PRELOAD).read_bytes()


def run_case(case, server, client, folder):
    """Runs a case; returns a complaint, or None."""
    port, environment = server.hosts.port(), environment_of(case)
    files = copied(folder) if case.program == "rcopy" else None
    if case.fork:
        SEMAPHORE.unlink(missing_ok=True)
    serving = server.verbena("run", *command(case, server, port), environment=environment)
    # Nothing shows from outside that an rsocket listens: the client retries until it is not refused.
    attempts = []

    def connects():
        attempts.append(client.verbena("run", *command(case, client, port, getattr(server, case.family), files),
                                       environment=environment))
        status = attempts[-1].wait(60)
        return None if was_refused(attempts[-1].output) else (status,)

    answer = harness.poll_until(connects, STARTED, step=0.1)
    calling, status = attempts[-1], answer[0] if answer else None
    server_status = 0 if case.serves_on else serving.wait(10 if status == 0 else 0.1)
    plain = case.preload and not case.fork and serving.listens(port)
    for process in (*attempts, serving):
        process.kill()
    if reads_past_preload(case, calling.output):
        print(f"{case.name}: not judged: it calls __recv_chk(), which the preload does not replace", flush=True)
        return None
    wrong = complaint(case, calling, status, files)
    if not wrong and server_status != 0:
        wrong = f"server {server_status}"
    if not wrong and plain:
        wrong = "the server listens on a plain socket"
    return wrong and f"{case.name}: {wrong}\n{harness.Result(serving, calling, server_status, status).report()}"


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--topology", choices=("one_host", "two_hosts"), action="append", help="default: both")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case in a row")
    parser.add_argument("--every", type=int, default=1, metavar="M", help="run the first case of each program and one in M of the others")
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "rstream", "riostream", "rcopy", "udpong")
    if not os.path.exists(PRELOAD):
        harness.skip(f"not installed: {PRELOAD}")
    failures, runs = [], 0
    for topology in options.topology or ("one_host", "two_hosts"):
        with harness.Hosts(options.build, options.route) as hosts, tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            server, client = (hosts.one(),) * 2 if topology == "one_host" else hosts.two()
            for case in harness.share_of(all_cases(), "", options.every):
                if options.case not in case.name:
                    continue
                bad = [wrong for wrong in (run_case(case, server, client, folder) for _ in range(options.repeat)) if wrong]
                runs += 1
                failures += bad
                print(f"{topology:10} {case.name:70} {'FAILED' if bad else 'ok'}", flush=True)
    for failure in failures:
        print(f"\n=== {failure}")
    print(f"\n{runs} cases, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
