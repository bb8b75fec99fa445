#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the routes between the queue pairs of Debian's programs in `verbena status`: shared memory on one host, unless one
end excludes it, and the wire between two hosts. Also checks whether each end can access the other's memory.

    run_routes.py --build build/release
"""

import os
import shutil
import tempfile

import harness

OFF = harness.ROUTES["wire"]


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ib_write_bw")

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        alone = hosts.one()
        first, second = hosts.two()
        for what, server, client, server_says, client_says, wanted in (
                ("one host, loopback alone", alone, alone, {}, {}, "local"),
                ("one host, by the address of its link", first, first, {}, {}, "local"),
                ("one host, VERBENA_LOCAL=off for the server", alone, alone, OFF, {}, "wire"),
                ("one host, VERBENA_LOCAL=off for the client", alone, alone, {}, OFF, "wire"),
                ("one host, VERBENA_LOCAL=off for both", alone, alone, OFF, OFF, "wire"),
                ("two hosts", first, second, {}, {}, "wire")):
            found = harness.routes(server, client, server_environment=server_says, client_environment=client_says,
                                   wanted=wanted)
            judge.say(what, None if found == [wanted] else f"{wanted} wanted, and status says {found or 'nothing: no traffic'}")
        with tempfile.TemporaryDirectory() as folder:
            # The kernel hides a process from other users if they may execute its program but not read it.
            os.chmod(folder, 0o755)
            hidden = shutil.copy(shutil.which("ib_write_bw"), folder)
            os.chmod(hidden, 0o111)
            for what, program, wanted in (("two programs of a user", "ib_write_bw", ["reached"]),
                                          ("one that may not be read", hidden, ["forbidden", "reached"])):
                pairs = harness.busy_pairs(alone, alone, serving_program=program, user=harness.ordinary_user())
                found = sorted({str(pair.get("peer_memory")) for pair in pairs})
                judge.say(f"the peer's memory, {what}", None if found == wanted else f"{wanted} wanted, and status says {found}")
    judge.exit()


if __name__ == "__main__":
    main()
