#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's programs between Verbena and the Linux kernel's rdma_rxe, with each as the server, over IPv4 and IPv6.

    kernel_peer.py --build build/release
    kernel_peer.py --build build/release --mtu 9000 --program ib_write_bw --repeat 20
"""

import argparse
import sys

import kernel_vm
from kernel_vm import harness

sys.path.insert(0, str(kernel_vm.TOP / "tests" / "conformance"))
import matrix  # noqa: E402

EMULATION = 3  # the machine is emulated, so programs may take this many times as long


def cases():
    few = ("-n", "200")
    return [
        matrix.pingpong("ibv_rc_pingpong", "-c", *few),
        matrix.pingpong("ibv_rc_pingpong", "-c", "-s", "100000", *few),
        matrix.pingpong("ibv_ud_pingpong", "-c", "-s", "1024", *few),
        matrix.rate("ib_send_bw", *few),
        matrix.rate("ib_write_bw", *few),
        matrix.rate("ib_write_bw", "-s", "100", *few),
        matrix.rate("ib_read_bw", *few),
        matrix.rate("ib_atomic_bw", *few),
        matrix.rate("ib_atomic_bw", "-A", "CMP_AND_SWAP", *few),
    ]


def run_case(hosts, machine, case, family, kernel_serves):
    """Runs a case once: (complaint or None, the client's output)."""
    ours, port = machine.our_host, hosts.port()
    option = "-g" if "pingpong" in case.program else "-x"
    words = [*case.command(), "-p", port, option]
    kernels = [*words, machine.gids[family]]
    mine = ["run", *words, ours.gid_index(getattr(ours, family), f"rxe_{ours.netdev}"), "-d", f"rxe_{ours.netdev}"]
    if kernel_serves:
        server = machine.start(hosts, *kernels, seconds=EMULATION * case.seconds)
        listening = machine.wait_for_listener(port)
        client = ours.verbena(*mine, kernel_vm.IPV4)
    else:
        server = ours.verbena(*mine)
        listening = harness.poll_until(lambda: server.listens(port) or not server.running(), 20)
        client = machine.start(hosts, *kernels, kernel_vm.OUR_IPV4, seconds=EMULATION * case.seconds)
    client_status = client.wait(EMULATION * case.seconds)
    server_status = server.wait(15 if client_status == 0 else 2)
    server.kill()
    client.kill()
    result = harness.Result(server, client, server_status, client_status)
    complaint = case.complaint(result) or (None if listening else "the server did not listen")
    return f"{complaint}\n{result.report()}" if complaint else None, client.output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", action="append", choices=sorted({case.program for case in cases()}))
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of the cable; 9000 gives a path MTU of 4096")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    harness.require_root()
    kernel_vm.image()

    failures, runs = [], 0
    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts, options.mtu) as machine:
        for case in cases():
            if options.program and case.program not in options.program:
                continue
            for family in ("ipv4", "ipv6"):
                for kernel_serves in (False, True):
                    name = f"{'kernel' if kernel_serves else 'verbena'} serves, {family}: {case.name}"
                    for _ in range(options.repeat):
                        complaint, output = run_case(hosts, machine, case, family, kernel_serves)
                        runs += 1
                        if complaint:
                            failures.append(f"{name}: {complaint}")
                            print(f"=== {failures[-1]}", flush=True)
                            break
                    figure = case.figure(output)
                    print(f"{name:72} {'FAILED' if complaint else 'ok':7} "
                          f"{f'{figure:10.2f} {case.unit}' if figure else ''}", flush=True)
    print(f"\n{runs} runs, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
