#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's Open MPI over Verbena without environment variables, on one host and between two: with the transports that
mpirun selects, and with each transport for verbs selected by name. The program is mpi4py's ring of messages.

    run_open_mpi.py --build build/release
"""

import re
import socket
import subprocess
import tempfile

import harness

SECONDS = 90
RING = ("/usr/bin/python3", "-m", "mpi4py.bench", "ringtest", "-l", "20", "-n", "16384")
# Options of mpirun; () lets it select a transport. (Debian's openib component connects queue pairs only on InfiniBand.)
OFI = ("--mca", "pml", "cm", "--mca", "mtl", "ofi")
UCX = ("--mca", "pml", "ucx")  # UCX declines if it has only TCP
TRANSPORTS = ((), UCX, OFI) if harness.ucx_knows_verbs() else ((), OFI)


def remote_shell_option(shell):
    """The option that sets mpirun's replacement for ssh. Open MPI 5 starts programs through PRRTE, which has another name for
    it."""
    told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    major = int(re.search(r"Open MPI\) (\d+)", told)[1])
    return ("--prtemca", "plm_ssh_agent", shell) if major >= 5 else ("--mca", "plm_rsh_agent", shell)


def ring(host, ranks, options, user=None):
    """Runs the ring; returns a complaint, or None."""
    status, output = host.run("mpirun", "-np", ranks, *options, *RING, seconds=SECONDS, user=user)
    if status == 0 and "time for" in output:
        return None
    _, devices = host.run("ibv_devinfo", user=user)  # without a device, only some transports fail
    return f"exit {status}\n{output}\n{devices}"


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "unshare", "mpirun")

    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts, tempfile.TemporaryDirectory() as folder:
        first, second = hosts.two()
        alone = hosts.one()
        # By name: PRRTE does not recognize its own host by address.
        launcher = remote_shell_option(harness.remote_shell(folder, hosts.build, second))
        for transport in TRANSPORTS:
            said = " ".join(transport) or "as it is"
            judge.say(f"two hosts, {said}",
                      ring(first, 2, ("--allow-run-as-root", "--host", f"{socket.gethostname()}:1,{second.ipv4}:1",
                                      *launcher, *transport), user=[]))
            judge.say(f"one host, {said}", ring(first, 2, ("--oversubscribe", *transport)))
            if transport is not OFI:  # libfabric creates no message endpoints on loopback
                judge.say(f"loopback alone, {said}", ring(alone, 2, ("--oversubscribe", *transport)))
    judge.exit()


if __name__ == "__main__":
    main()
