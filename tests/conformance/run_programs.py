#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's unmodified RDMA programs over Verbena as an ordinary user, and reports the results.

    run_programs.py --build build/release                          everything, once, on one host and on two
    run_programs.py --build build/release --repeat 100             a hundred times in a row
    run_programs.py --build build/release --repeat 100 --iterations 50      the same in short runs
    run_programs.py --build build/release --repeat 100 --quick --options -a  every size, without most of perftest's waiting
    run_programs.py --build build/release --program ib_write_bw --topology two_hosts --options -a
    run_programs.py --build build/release --topology one_host --route wire         on one host, by UDP all the same
"""

import dataclasses
import os
import statistics
import subprocess
import sys

import harness
import matrix

TOPOLOGIES = ("one_host", "two_hosts")


def hosts_for(hosts, topology, mtu, netdev="lo"):
    if topology == "one_host":
        host = hosts.one() if netdev == "lo" else hosts.two(mtu)[0]
        return host, host
    return hosts.two(mtu)


def gid_options(case, host):
    if not case.gid:
        return []
    index = host.gid_index(getattr(host, case.gid))
    return ["-g" if "pingpong" in case.program else "-x", index]


def run_case(hosts, case, server, client, repeat, environment):
    """(figures of the good runs, reports of the bad runs)."""
    if case.raw:
        return run_raw(case, server, client, repeat, environment)
    with harness.shared_files(2 if case.shared else 0) as files:
        return run_pairs(case, server, client, repeat, environment, [[f"--mmap={path}"] for path in files] or [[], []])


def run_pairs(case, server, client, repeat, environment, buffers):
    """Like run_case(), for programs that come in pairs. `buffers`: options with the locations of the ends' buffers."""
    address = server.ipv4
    server_options = [*gid_options(case, server), *buffers[0]]
    client_options = [*gid_options(case, client), *buffers[1]]
    figures, failures = [], []
    for _ in range(repeat):
        if case.clients > 1:
            make_domain_file_usable()
            result = harness.crowd(server, client, case.command(), case.clients,
                                   server_options=["-c", case.clients, *server_options],
                                   client_options=client_options, address=address, seconds=case.seconds, environment=environment)
        else:
            result = harness.pair(server, client, case.command(), server_options=server_options,
                                  client_options=client_options, address=address, seconds=case.seconds,
                                  environment=environment)
        complaint = case.complaint(result)
        if complaint:
            failures.append(f"{case.name}: {complaint}\n{result.report()}")
            if len(failures) == 3:
                break
        elif case.figure:
            figures.append(case.figure(result.client.output))
    return figures, failures


def make_domain_file_usable():
    """ibv_xsrq_pingpong's clients share a file. A client that may not open the file runs without sharing."""
    name = "/tmp/xrc_domain"
    if os.path.exists(name) and subprocess.run([*harness.ordinary_user(), "test", "-r", name], check=False).returncode:
        os.unlink(name)


def run_raw(case, server, client, repeat, environment):
    """Like run_case(), for raw Ethernet."""
    figures, failures = [], []
    for _ in range(repeat):
        result = harness.raw_pair(server, client if case.raw == "pair" else None, case.command(), seconds=case.seconds,
                                  environment=environment)
        complaint = case.complaint(result)
        if complaint:
            failures.append(f"{case.name}: {complaint}\n{result.report()}")
        elif case.figure:
            figures.append(case.figure(result.client.output))
    return figures, failures


def run_devices(hosts, topology, failures):
    """Runs ibv_devices and ibv_devinfo -v, which must show an active port with a GID for each address."""
    server, client = hosts_for(hosts, topology, 1500)
    for host in dict.fromkeys((server, client)):
        for command, wanted in ((["ibv_devices"], f"rxe_{host.netdev}"),
                                (["ibv_devinfo", "-v"], f"::ffff:{host.ipv4}, RoCE v2"),
                                (["ibv_devinfo", "-v"], "PORT_ACTIVE"),
                                (["ibv_devinfo", "-v"], "link_layer:\t\tEthernet")):
            status, output = host.run(*command)
            good = status == 0 and wanted in output
            print(f"{topology:10} {' '.join(command):58} {'ok' if good else 'FAILED'}", flush=True)
            if not good:
                failures.append(f"{' '.join(command)}: exit {status}, '{wanted}' wanted in\n{output}")
                print(f"=== {failures[-1]}")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--topology", choices=TOPOLOGIES, action="append", help="default: both")
    parser.add_argument("--program", action="append", choices=["devices", *matrix.programs()], help="default: all")
    parser.add_argument("--options", help="only cases whose options contain this")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case in a row")
    parser.add_argument("--iterations", type=int, help="messages per run, unless the case gives a number")
    parser.add_argument("--quick", action="store_true",
                        help="speed up perftest's clock: runs are shorter, and their figures are wrong")
    parser.add_argument("--without", action="append", default=[], help="leave out cases whose options contain this")
    harness.add_share_options(parser)
    harness.add_route_option(parser)
    parser.add_argument("--log", help="VERBENA_LOG for the programs: error, warning, info, debug")
    options = parser.parse_args()
    harness.require_root()
    programs = options.program or ["devices", *matrix.programs()]
    harness.require_programs("ip", "setpriv", *(name for name in programs if name != "devices"))
    environment = {"VERBENA_LOG": options.log} if options.log else {}
    if options.quick:
        environment["LD_PRELOAD"] = os.path.join(os.path.abspath(options.build), "tests", "libperftest_clock.so")

    failures, runs = [], 0
    for topology in options.topology or TOPOLOGIES:
        with harness.Hosts(options.build, options.route) as hosts:
            if "devices" in programs:
                run_devices(hosts, topology, failures)
                runs += 1
            pairs = {}  # hosts by MTU, device and user, so that agents and addresses are set up once
            for case in harness.share_of(matrix.all_cases(), options.share, options.every):
                if case.program not in programs or (options.options and options.options not in case.name):
                    continue
                if any(word in case.name for word in options.without):
                    continue
                if options.iterations:
                    case = case.shortened(options.iterations)
                if options.quick:
                    case = dataclasses.replace(case, figure=None)  # sometimes it finds no clock frequency, and prints no figures
                # A loopback device has a single MTU; cases with another MTU need the cable.
                if topology == "one_host" and (case.mtu != 1500 or case.raw):
                    continue
                if case.topology not in (None, topology):
                    continue
                # Root has its own hosts, because the first user on a host starts its agent.
                which = (case.mtu, case.netdev, bool(case.raw))
                if which not in pairs:
                    pairs[which] = hosts_for(hosts, topology, case.mtu, case.netdev)
                figures, bad = run_case(hosts, case, *pairs[which], options.repeat, environment)
                runs += 1
                failures += bad
                figure = f"{statistics.median(figures):10.2f} {case.unit}" if figures else ""
                verdict = f"FAILED {len(bad)}" if bad else "ok"
                print(f"{topology:10} {case.name:58} {len(figures):4} good {verdict:9} {figure}", flush=True)
                for report in bad[:1]:
                    print(f"=== {report}", flush=True)
    print(f"\n{runs} cases, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
