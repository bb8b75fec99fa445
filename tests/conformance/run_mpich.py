#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a ring of messages over Debian's MPICH (with UCX), on one host and between two: without environment variables, and with
UCX set to use verbs where it would choose its own shared memory.

    run_mpich.py --build build/release
"""

import pathlib
import shutil
import tempfile

import harness

SECONDS = 90
RING = pathlib.Path(__file__).resolve().parent / "mpich_ring.py"


def ring(host, program, options, user=None, environment=None):
    """Runs the ring; returns a complaint, or None."""
    ranks = 2
    status, output = host.run("mpirun.mpich", "-n", ranks, *options, "python3", program, seconds=SECONDS, user=user,
                              environment=environment)
    return None if status == 0 and f"ring of {ranks}: ok" in output else f"exit status {status}\n{output}"


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "unshare", "mpirun.mpich")

    judge = harness.Judge()
    verbs = {"UCX_TLS": "rc_verbs,ud_verbs,self"}
    with harness.Hosts(options.build, options.route) as hosts, tempfile.TemporaryDirectory() as folder:
        first, second = hosts.two()
        program = shutil.copy(RING, folder)  # an ordinary user may not be able to read the checkout
        pathlib.Path(folder).chmod(0o755)
        shell = harness.remote_shell(folder, hosts.build, second)
        between = ("-launcher", "ssh", "-launcher-exec", shell, "-hosts", f"{first.ipv4},{second.ipv4}", "-ppn", 1)
        judge.say("two hosts, without environment variables", ring(first, program, between, user=[]))
        judge.say("one host, without environment variables", ring(first, program, ()))
        if harness.ucx_knows_verbs():
            judge.say("two hosts, verbs", ring(first, program, between, user=[], environment=verbs))
            judge.say("one host, verbs", ring(first, program, (), environment=verbs))
        else:
            print("with verbs alone: left out, as UCX was built without verbs here")
    judge.exit()


if __name__ == "__main__":
    main()
