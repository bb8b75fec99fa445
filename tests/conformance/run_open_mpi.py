#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's Open MPI over Verbena, with no environment variables, on one host and between two: as mpirun takes its transports by
itself, and each transport that is made for verbs by name. The program is mpi4py's ring of messages.

    run_open_mpi.py --build build/release
"""

import re
import socket
import subprocess
import tempfile

import harness

SECONDS = 90
RING = ("/usr/bin/python3", "-m", "mpi4py.bench", "ringtest", "-l", "20", "-n", "16384")
# What mpirun is told; () is what it takes by itself. (Debian's openib component connects queue pairs only on InfiniBand.)
OFI = ("--mca", "pml", "cm", "--mca", "mtl", "ofi")
UCX = ("--mca", "pml", "ucx")  # it declines where it has only TCP
TRANSPORTS = ((), UCX, OFI) if harness.ucx_knows_verbs() else ((), OFI)


def remote_shell_option(shell):
    """How mpirun is told what to call in place of ssh: Open MPI 5 starts programs by PRRTE, where it has another name."""
    told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    major = int(re.search(r"Open MPI\) (\d+)", told)[1])
    return ("--prtemca", "plm_ssh_agent", shell) if major >= 5 else ("--mca", "plm_rsh_agent", shell)


def ring(host, ranks, options, user=None):
    """Answers what is wrong, or None."""
    status, output = host.run("mpirun", "-np", ranks, *options, *RING, seconds=SECONDS, user=user)
    if status == 0 and "time for" in output:
        return None
    _, devices = host.run("ibv_devinfo", user=user)  # without any, only some transports fail
    return f"exit {status}\n{output}\n{devices}"


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "unshare", "mpirun")

    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts, tempfile.TemporaryDirectory() as folder:
        first, second = hosts.two()
        alone = hosts.one()
        # By its name: PRRTE does not find the host that it runs on by an address.
        launcher = remote_shell_option(harness.remote_shell(folder, hosts.build, second))
        for transport in TRANSPORTS:
            said = " ".join(transport) or "as it is"
            judge.say(f"two hosts, {said}",
                      ring(first, 2, ("--allow-run-as-root", "--host", f"{socket.gethostname()}:1,{second.ipv4}:1",
                                      *launcher, *transport), user=[]))
            judge.say(f"one host, {said}", ring(first, 2, ("--oversubscribe", *transport)))
            if transport is not OFI:  # libfabric makes no endpoints of messages over loopback
                judge.say(f"loopback alone, {said}", ring(alone, 2, ("--oversubscribe", *transport)))
    judge.exit()


if __name__ == "__main__":
    main()
