#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges management datagrams between programs on Verbena and on the Linux kernel through libibumad, in both directions:
short ones, and long messages of several datagrams (RMPP).

    kernel_mads.py --build build/release

Over IPv6 only: over IPv4 the kernel (6.1) cannot match an acknowledgement to its message, because it compares GIDs, which an
IPv4 header does not have. Two kernels cannot exchange such a message either.
"""

import argparse
import pathlib
import re
import shutil
import sys

import kernel_vm
from kernel_vm import harness

SIZES = (40, 256, 257, 440, 10_000, 300_000, 1_000_000)
SECONDS = 180
DEBIANS = "libibumad.so.3"


def ask(machine, hosts, peer, kernel_serves):
    """One program asks and the other answers: (complaint or None, output of the asking program)."""
    ours = machine.our_host
    device = f"rxe_{ours.netdev}"
    mine = ["run", peer, device]
    theirs = ["LD_LIBRARY_PATH=/host", "/host/rmpp_peer", "rxe0"]
    if kernel_serves:
        server = machine.start(hosts, "env", *theirs, "serve", seconds=SECONDS)
        harness.poll_until(lambda: "serving" in server.output or not server.running(), 20)
        client = ours.verbena(*mine, "ask", kernel_vm.IPV6, ours.gid_index(ours.ipv6, device), *SIZES)
    else:
        server = ours.verbena(*mine, "serve")
        harness.poll_until(lambda: "serving" in server.output or not server.running(), 20)
        client = machine.start(hosts, "env", *theirs, "ask", kernel_vm.OUR_IPV6, machine.gids["ipv6"], *SIZES, seconds=SECONDS)
    status = client.wait(SECONDS)
    for process in (client, server):
        process.kill()
    good = all(re.search(rf"^{size}: good", client.output, re.MULTILINE) for size in SIZES)
    return None if status == 0 and good else f"exit status {status}\n{server.output}", client.output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    kernel_vm.image()
    debians = next(pathlib.Path("/usr/lib").glob(f"*/{DEBIANS}"), None)
    if not debians:
        harness.skip(f"there is no {DEBIANS} of Debian's (scripts/setup vm)")
    failures = 0
    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts) as machine:
        shutil.copy(debians, machine.shared / DEBIANS)
        peer = shutil.copy(pathlib.Path(options.build).resolve() / "tests" / "rmpp_peer", machine.shared / "rmpp_peer")
        machine.shared.chmod(0o755)  # for ordinary users
        status, output = machine.run("modprobe ib_umad; ls /dev/infiniband")
        if status != 0 or "umad0" not in output:
            sys.exit(f"the kernel has no umad0: {output}")
        for kernel_serves in (True, False):
            wrong, said = ask(machine, hosts, peer, kernel_serves)
            failures += wrong is not None
            print(f"{'kernel' if kernel_serves else 'verbena'} serves: {wrong or 'ok'}\n{said}", flush=True)
    print(f"{2 - failures} of 2 passed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
