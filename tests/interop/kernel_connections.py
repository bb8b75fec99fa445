#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that connect by address between Verbena and the Linux kernel's rdma_cm over rdma_rxe, with each as the server,
over IPv4 and IPv6.

    kernel_connections.py --build build/release
    kernel_connections.py --build build/release --program rping --repeat 20
"""

import argparse
import dataclasses
import sys

import kernel_vm
from kernel_vm import harness

sys.path.insert(0, str(kernel_vm.TOP / "tests" / "conformance"))
import connections  # noqa: E402
import run_connections  # noqa: E402
import run_rsockets  # noqa: E402

EMULATION = 3  # the machine is emulated, so programs may take this many times as long
THEIRS = {"ipv4": kernel_vm.IPV4, "ipv6": kernel_vm.IPV6}
OURS = {"ipv4": kernel_vm.OUR_IPV4, "ipv6": kernel_vm.OUR_IPV6}


def cases():
    return [
        connections.rping(), connections.rping("-S", "60000", count=3),
        connections.ucmatose(), connections.ucmatose("-c", "5"),
        connections.udaddy(), connections.udaddy("-c", "3"),
        # Linux 6.1 cannot join an IPv6 group over RoCE (ENOTSUPP).
        dataclasses.replace(connections.mckey(), families=("ipv4",)),
        connections.stream("rstream", "-I", "20", "-C", "4", "-S", "5000", "-T", "v"),
        connections.stream("rstream", "-I", "20", "-C", "4", "-S", "5000", "-T", "n"),
    ]


def wait_for_kernel_listener(machine, port, seconds=30):
    """Waits until an identifier of rdma_cm listens in the machine, on this port if one is given; returns whether one does."""
    status, _ = machine.run(f"for i in $(seq {seconds * 10}); do rdma resource show cm_id | grep -qi 'listen.*:{port or ''}' && "
                            "exit 0; sleep 0.1; done; exit 1", seconds + 5)
    return status == 0


def run_case(hosts, machine, case, family, kernel_serves):
    """Runs a case once; returns a complaint, or None."""
    ours = machine.our_host
    server, client = (THEIRS, OURS) if kernel_serves else (OURS, THEIRS)
    words = {"server": server[family], "client": client[family], "any": connections.ANY[family],
             "group": connections.GROUP[family], "port": hosts.port()}
    serve, call = case.server.format(**words).split(), case.client.format(**words).split()
    seconds = EMULATION * case.seconds
    serve = ["stdbuf", "-oL", *serve]
    if kernel_serves:
        serving = machine.start(hosts, *serve, seconds=seconds)
        if case.counts_listener:
            wait_for_kernel_listener(machine, words["port"] if "{port}" in case.server else None)
        else:
            harness.poll_until(lambda: case.ready in serving.output or not serving.running(), 30)
        calling = ours.verbena("run", *call)
    else:
        serving = ours.verbena("run", *serve)
        run_connections.wait_until_ready(case, ours, serving)
        calling = machine.start(hosts, *call, seconds=seconds)
    client_status = calling.wait(seconds)
    server_status = None if case.server_stays else serving.wait(20 if client_status == 0 else 2)
    for process in (serving, calling):
        process.kill()
    result = harness.Result(serving, calling, server_status, client_status)
    complaint = case.complaint(result)
    return f"{complaint}\n{result.report()}" if complaint else None


def run_rsockets_case(hosts, machine, case, kernel_serves):
    """Like run_case(), for rsockets programs. Nothing shows from outside that they listen, so the client retries while it is
    refused."""
    ours, port, seconds = machine.our_host, hosts.port(), EMULATION * 40
    theirs = harness.Host(hosts, None, kernel_vm.IPV4, kernel_vm.IPV6, "eth0")

    def begin(in_kernel, *words):
        return machine.start(hosts, *words, seconds=seconds) if in_kernel else ours.verbena("run", *words)

    served = theirs if kernel_serves else ours
    serving = begin(kernel_serves, *run_rsockets.command(case, served, port))
    attempts = []

    def connects():
        attempts.append(begin(not kernel_serves, *run_rsockets.command(case, served, port, getattr(served, case.family))))
        status = attempts[-1].wait(seconds)
        return None if run_rsockets.was_refused(attempts[-1].output) else (status,)

    answer = harness.poll_until(connects, EMULATION * run_rsockets.STARTED, step=0.1)
    calling, status = attempts[-1], answer[0] if answer else None
    server_status = 0 if case.serves_on else serving.wait(20 if status == 0 else 2)
    for process in (*attempts, serving):
        process.kill()
    complaint = run_rsockets.complaint(case, calling, status, None) or (f"server {server_status}" if server_status else None)
    return f"{complaint}\n{harness.Result(serving, calling, server_status, status).report()}" if complaint else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", action="append", choices=sorted({case.program for case in cases()}))
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs(*(options.program or {case.program for case in cases()}))
    kernel_vm.image()

    failures, runs = [], 0
    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts) as machine:
        status, output = machine.run("modprobe rdma_ucm && test -c /dev/infiniband/rdma_cm")
        if status:
            raise RuntimeError(f"no rdma_cm in the virtual machine: {output}")
        for case in cases():
            if options.program and case.program not in options.program:
                continue
            for family in case.families:
                for kernel_serves in (False, True):
                    name = f"{'kernel' if kernel_serves else 'verbena'} serves, {family}: {case.name}"
                    for _ in range(options.repeat):
                        complaint = run_case(hosts, machine, case, family, kernel_serves)
                        runs += 1
                        if complaint:
                            failures.append(f"{name}: {complaint}")
                            print(f"=== {failures[-1]}", flush=True)
                            break
                    print(f"{name:88} {'FAILED' if complaint else 'ok'}", flush=True)
    print(f"\n{runs} runs, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
