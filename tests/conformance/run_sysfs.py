#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks devices in /sys and /dev as programs see them: links, directory listings and files must look like the kernel's.
Includes Prometheus' node_exporter, a Go program, which no preloaded library can reach.

    run_sysfs.py --build build/release
"""

import re
import shutil
import subprocess
import sys

import harness

EXPORTER = "prometheus-node-exporter"
PORT = 9793
SECONDS = 30
DEVICE = "rxe_eth0"


def check_files(judge, host):
    """Programs under `verbena run` must print the same as with the kernel's files."""
    hardware = f"/sys/devices/infiniband.verbena/{DEVICE}"
    for what, command, expected in (
            ("a device is a link", ["readlink", f"/sys/class/infiniband/{DEVICE}"],
             rf"\.\./\.\./devices/infiniband\.verbena/{DEVICE}/infiniband/{DEVICE}"),
            ("its hardware is one", ["readlink", f"/sys/class/infiniband/{DEVICE}/device"], rf"\.\./\.\./\.\./{DEVICE}"),
            ("where they lead", ["realpath", f"/sys/class/infiniband/{DEVICE}/device"], hardware),
            ("files there", ["cat", f"{hardware}/net/eth0/mtu"], "1500"),
            ("ls /sys/class", ["ls", "/sys/class"], r"[\s\S]*^infiniband\ninfiniband_mad\ninfiniband_verbs$[\s\S]*^net$[\s\S]*"),
            ("ls in /sys/class", ["sh", "-c", "cd /sys/class; ls"], r"[\s\S]*^infiniband_verbs$[\s\S]*"),
            ("ls /dev", ["ls", "/dev"], r"[\s\S]*^infiniband$[\s\S]*^null$[\s\S]*"),
            ("the connection manager's version", ["cat", "/sys/class/misc/rdma_cm/abi_version"], "4"),
            ("its node", ["stat", "-L", "-c", "%F", "/dev/infiniband/rdma_cm"], "character special file"),
            ("board_id", ["cat", f"/sys/class/infiniband/{DEVICE}/board_id"], "verbena"),
            ("an empty index of the GID table", ["sh", "-c", f"cat /sys/class/infiniband/{DEVICE}/ports/1/gid_attrs/types/15"],
             r"cat: .*Invalid argument")):
        output = host.run(*command)[1].strip()
        judge.say(what, None if re.fullmatch(expected, output, re.MULTILINE) else output or "nothing")


def exporter_arguments(host):
    """The arguments given in docs/watching.md."""
    namespace = harness.sh(*host.enter(), "stat", "-Lc", "%i", "/proc/self/ns/net").strip()
    return [f"--path.sysfs=/run/verbena/{namespace}/sys", "--collector.disable-defaults", "--collector.infiniband"]


def scrape(host):
    script = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{PORT}/metrics', timeout=5).read().decode())"
    return subprocess.run([*host.enter(), sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout


def check_exporter(judge, host):
    exporter = host.start([EXPORTER, *exporter_arguments(host), f"--web.listen-address=127.0.0.1:{PORT}"])
    try:
        pattern = rf'^node_infiniband_(\w+){{device="{DEVICE}",port="1"}} (\S+)'
        found = harness.poll_until(lambda: dict(re.findall(pattern, scrape(host), re.MULTILINE)), SECONDS, 0.2)
        judge.say("node_exporter finds statistics", None if found else f"{scrape(host)}\n{exporter.output}")
        server = host.verbena("run", "ib_send_bw", "-n", "1000", "-d", DEVICE)
        harness.poll_until(lambda: server.listens(18515), 20)
        host.run("ib_send_bw", "-n", "1000", "-d", DEVICE, host.ipv4, seconds=60)
        grown = harness.poll_until(lambda: float(dict(re.findall(pattern, scrape(host), re.MULTILINE))
                                                 .get("port_data_transmitted_bytes_total", 0)) > 1e6, 10, 0.2)
        judge.say("node_exporter counts", None if grown else scrape(host))
        judge.say("node_exporter knows the device", None if 'board_id="verbena"' in scrape(host) else scrape(host))
    finally:
        exporter.kill()


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ib_send_bw")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host, _ = hosts.two()
        host.start_agent()
        check_files(judge, host)
        if shutil.which(EXPORTER):
            check_exporter(judge, host)
        else:
            print(f"{EXPORTER} is not installed")
    judge.exit()


if __name__ == "__main__":
    main()
