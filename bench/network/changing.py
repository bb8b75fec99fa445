#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one program over a path whose rate goes up and down, for any time, and checks that the transfer never stalls.

    changing.py --build build/release --seconds 3600
    changing.py --build build/release --seconds 60 --rate 1000 --other-rate 200 --turn 1

The byte counter of the receiving device is read every quarter of a second. A stall is a second in which less arrives than a quarter
of what the slower rate carries. The exit status is 1 if there was a stall, or if the program failed.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
from far import MEBI, PROGRAMS  # noqa: E402
from links import MESSAGE_BYTES  # noqa: E402

STEP = 0.25  # seconds
STARTING = 3  # seconds that the program may take to start


def received(pid):
    """Bytes received by eth0 in the namespace of the process. Raises OSError once the process has ended."""
    for line in pathlib.Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split(":")[1].split()[0])
    return 0


def watch(receiving, sending, seconds):
    """The receive rate over the last second, at every step: (seconds since the beginning, MB/s)."""
    began = time.monotonic()
    seen = []
    with contextlib.suppress(OSError):
        while sending.running() and receiving.running() and time.monotonic() - began < seconds:
            seen.append((time.monotonic() - began, received(receiving.pid)))
            time.sleep(STEP)
    per_second = round(1 / STEP)
    return [(now, (bytes_ - before) / (now - then) / 1e6)
            for (then, before), (now, bytes_) in zip(seen, seen[per_second:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    parser.add_argument("--seconds", type=int, default=60, help="length of the program's measurement")
    parser.add_argument("--rate", type=float, default=200, help="rate of the path, in Mb/s")
    parser.add_argument("--other-rate", type=float, default=50, help="rate in every other turn, in Mb/s")
    parser.add_argument("--turn", type=float, default=1, help="length of a turn, in seconds")
    parser.add_argument("--delay", type=float, default=5, help="one-way delay in milliseconds")
    parser.add_argument("--queue", type=int, default=250000, help="size of the queue in bytes")
    parser.add_argument("--program", choices=PROGRAMS, default=PROGRAMS[0], help="the program of Debian's perftest to run")
    parser.add_argument("--events", action="store_true", help="ib_send_bw sleeps instead of polling; --seconds is then approximate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--realtime", action="store_true",
                        help="run the emulator and both ends with real-time priority: for a busy machine, with --events")
    options = parser.parse_args()
    harness.require_root()
    harness.require_tap()
    harness.require_programs("ip", options.program, "setpriv", "chrt")
    if options.events and options.program != "ib_send_bw":
        parser.error("--events works with ib_send_bw only")
    mean = (options.rate + options.other_rate) / 16
    link = ["--rate", options.rate, "--other-rate", options.other_rate, "--rate-turn", options.turn * 1000, "--queue", options.queue,
            "--delay", options.delay, "--seed", options.seed]
    # The emulator has a higher priority than the programs.
    emulating, running = (["chrt", "-r", "2"], ["chrt", "-r", "1"]) if options.realtime else ([], [])
    with harness.Hosts(options.build) as hosts:
        (server, client), emulator = hosts.two_far(link, prefix=emulating)
        index = client.gid_index(client.ipv4, "rxe_eth0")
        # perftest can measure for a given time (-D) only when it polls, so --events sends a number of messages.
        messages = round(mean * 1e6 * options.seconds / MESSAGE_BYTES)
        command = [options.program, "-d", "rxe_eth0", "-x", index, "-F", "-s", MESSAGE_BYTES,
                   *(["-e", "-n", messages] if options.events else ["-D", options.seconds])]
        port = hosts.port()
        user = [*running, *harness.ordinary_user()] if running else None
        serving = server.verbena("run", *command, "-p", port, user=user)
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        calling = client.verbena("run", *command, "-p", port, server.ipv4, user=user)
        # READs transfer data to the client.
        ends = (calling, serving) if options.program == "ib_read_bw" else (serving, calling)
        seen = watch(*ends, options.seconds * (3 if options.events else 1) + STARTING)
        status = calling.wait(60)
        serving.wait(10)
        for process in (calling, serving):
            process.kill()
        counted = emulator.end()
    figure = harness.bandwidth(calling.output)
    slow = min(options.rate, options.other_rate) / 8
    # The last second is incomplete.
    during = [(now, rate) for now, rate in seen if STARTING <= now <= seen[-1][0] - 2]
    stalls = [(now, rate) for now, rate in during if rate < slow / 4]
    rates = sorted(rate for _, rate in during)
    print(f"{options.program} for {options.seconds} s over {options.rate:g} and {options.other_rate:g} Mb/s in turns of {options.turn:g} s:")
    if status != 0 or figure is None or not rates:
        print(serving.output + calling.output)
        sys.exit(f"the program failed: {status}")
    print(f"  {figure * MEBI:.1f} MB/s, {figure * MEBI / mean:.2f} of the link's average rate")
    print(f"  MB/s over one second, {len(rates)} samples: minimum {rates[0]:.2f}, 0.1 % below {rates[len(rates) // 1000]:.2f}, "
          f"median {statistics.median(rates):.1f}; the slow rate is {slow:.2f}")
    print(f"  {len(stalls)} stalls: seconds with less than {slow / 4:.2f} MB/s" + "".join(f"\n    at {now:.1f} s: {rate:.3f}" for now, rate in stalls[:20]))
    print(f"  the link: {counted}")
    sys.exit(1 if stalls else 0)


if __name__ == "__main__":
    main()
