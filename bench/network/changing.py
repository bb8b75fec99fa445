#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program, for as long as is wanted, over a path whose rate goes up and down: whether it ever stands still.

    changing.py --build build/release --seconds 3600
    changing.py --build build/release --seconds 60 --rate 1000 --other-rate 200 --turn 1

What arrives at the server's device is looked at every quarter of a second. A stall is a second in which it is less than a quarter of
what the slower of the two rates carries. Ends with 1 if there was one, or if the program failed.
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
STARTING = 3  # seconds in which the program may come up


def received(pid):
    """Bytes that the device of the process's namespace has received; OSError: it has ended."""
    for line in pathlib.Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split(":")[1].split()[0])
    return 0


def watch(receiving, sending, seconds):
    """What arrived in each second, at every step: (seconds since the beginning, MB/s)."""
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
    parser.add_argument("--seconds", type=int, default=60, help="that the program measures for")
    parser.add_argument("--rate", type=float, default=200, help="Mb/s")
    parser.add_argument("--other-rate", type=float, default=50, help="Mb/s, of every other turn")
    parser.add_argument("--turn", type=float, default=1, help="seconds that each lasts")
    parser.add_argument("--delay", type=float, default=5, help="milliseconds, one way")
    parser.add_argument("--queue", type=int, default=250000, help="bytes that may wait")
    parser.add_argument("--program", choices=PROGRAMS, default=PROGRAMS[0], help="Debian's")
    parser.add_argument("--events", action="store_true", help="ib_send_bw sleeps in place of polling, and takes about as long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--realtime", action="store_true",
                        help="the emulator and both ends go before all else: for a machine that has other work, with --events")
    options = parser.parse_args()
    harness.require_root()
    harness.require_tap()
    harness.require_programs("ip", options.program, "setpriv", "chrt")
    if options.events and options.program != "ib_send_bw":
        parser.error("--events is of ib_send_bw")
    mean = (options.rate + options.other_rate) / 16
    link = ["--rate", options.rate, "--other-rate", options.other_rate, "--rate-turn", options.turn * 1000, "--queue", options.queue,
            "--delay", options.delay, "--seed", options.seed]
    # The emulator before the programs.
    emulating, running = (["chrt", "-r", "2"], ["chrt", "-r", "1"]) if options.realtime else ([], [])
    with harness.Hosts(options.build) as hosts:
        (server, client), emulator = hosts.two_far(link, prefix=emulating)
        index = client.gid_index(client.ipv4, "rxe_eth0")
        # perftest measures for a time only where it polls.
        messages = round(mean * 1e6 * options.seconds / MESSAGE_BYTES)
        command = [options.program, "-d", "rxe_eth0", "-x", index, "-F", "-s", MESSAGE_BYTES,
                   *(["-e", "-n", messages] if options.events else ["-D", options.seconds])]
        port = hosts.port()
        user = [*running, *harness.ordinary_user()] if running else None
        serving = server.verbena("run", *command, "-p", port, user=user)
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        calling = client.verbena("run", *command, "-p", port, server.ipv4, user=user)
        # What READs bring comes to the client.
        ends = (calling, serving) if options.program == "ib_read_bw" else (serving, calling)
        seen = watch(*ends, options.seconds * (3 if options.events else 1) + STARTING)
        status = calling.wait(60)
        serving.wait(10)
        for process in (calling, serving):
            process.kill()
        counted = emulator.end()
    figure = harness.bandwidth(calling.output)
    slow = min(options.rate, options.other_rate) / 8
    # Its last second is not whole.
    during = [(now, rate) for now, rate in seen if STARTING <= now <= seen[-1][0] - 2]
    stalls = [(now, rate) for now, rate in during if rate < slow / 4]
    rates = sorted(rate for _, rate in during)
    print(f"{options.program} for {options.seconds} s over {options.rate:g} and {options.other_rate:g} Mb/s in turns of {options.turn:g} s:")
    if status != 0 or figure is None or not rates:
        print(serving.output + calling.output)
        sys.exit(f"the program failed: {status}")
    print(f"  {figure * MEBI:.1f} MB/s, {figure * MEBI / mean:.2f} of what the link carries on average")
    print(f"  in a second, of {len(rates)}: at least {rates[0]:.2f} MB/s, one in a thousand below {rates[len(rates) // 1000]:.2f}, "
          f"median {statistics.median(rates):.1f}; the slow rate is {slow:.2f}")
    print(f"  {len(stalls)} stalls: seconds with less than {slow / 4:.2f} MB/s" + "".join(f"\n    at {now:.1f} s: {rate:.3f}" for now, rate in stalls[:20]))
    print(f"  the link: {counted}")
    sys.exit(1 if stalls else 0)


if __name__ == "__main__":
    main()
