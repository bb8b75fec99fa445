#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a small Ceph cluster over Verbena, on one host and between two: one monitor and two OSDs with memstore in network
namespaces, and `rados bench` with ms_type=async+rdma. Does the same with TCP (async+posix), and prints the figures side by
side. Fails if an operation fails.

    run_ceph.py --build build/release [--seconds 10] [--placement one_host] [--messenger rdma] [--set ms_async_rdma_polling_us=0]
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import uuid

import harness

STEP_SECONDS = 60
MTU = 9000
MESSENGERS = {"tcp": "async+posix", "rdma": "async+rdma"}
PLACEMENTS = ("one_host", "two_hosts")
# Loads: name, object size, requests in flight.
LOADS = (("4 KiB", 4096, 16), ("4 MiB", 4 << 20, 16))

CONFIGURATION = """
[global]
fsid = {fsid}
mon_host = {monitor}
public_network = 10.9.0.0/24
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = false
ms_type = {messenger}
ms_async_rdma_device_name = rxe_eth0
ms_async_rdma_gid_idx = 1
ms_async_rdma_cm = {by_address}
ms_async_rdma_type = {type}
ms_async_rdma_receive_buffers = 4096
ms_async_rdma_receive_queue_len = 1024
osd_objectstore = memstore
memstore_device_bytes = 2G
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_class_update_on_start = false
osd_crush_update_on_start = false
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
mon_allow_pool_delete = true
mon_data = {folder}/mon
osd_data = {folder}/osd$id
run_dir = {folder}
admin_socket = {folder}/$name.asok
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
keyring = {folder}/keyring
crash_dir = {folder}
"""


class Cluster:
    """A monitor and two OSDs. The monitor and the first OSD run on the first host, the second OSD and the clients on the
    second."""

    def __init__(self, first, second, folder, messenger, by_address=False, settings=()):
        self.first, self.second = first, second
        self.folder = pathlib.Path(folder)
        self.under_verbena = messenger == "rdma"
        self.configuration = self.folder / "ceph.conf"
        self.fsid = str(uuid.uuid4())
        self.configuration.write_text(CONFIGURATION.format(
            fsid=self.fsid, monitor=first.ipv4, messenger=MESSENGERS[messenger], by_address=str(by_address).lower(),
            type="iwarp" if by_address else "ib",
            folder=folder) + "".join(f"{line}\n" for line in settings), encoding="ascii")
        self.daemons = []

    def start(self, host, *words):
        prefix = [host.hosts.build.program, "run"] if self.under_verbena else []
        return host.start([*prefix, words[0], "-c", self.configuration, *words[1:]], user=[])

    def run(self, host, *words, seconds=STEP_SECONDS):
        for _ in range(3):
            status, output = host.finish(self.start(host, *words), seconds)
            if status != 1 or words[0] != "ceph":
                break  # else retry: a request may leave before it has the cluster's ID ("wrong fsid"), a bug in Ceph
        if status != 0:
            raise RuntimeError(f"{' '.join(map(str, words))}: {status}\n{output[-3000:]}\n{self.logs()}")
        return output

    def logs(self):
        lines = []
        for log in sorted(self.folder.glob("*.log")):
            lines.append(f"--- {log.name}")
            lines += log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        return "\n".join(lines + [one.output[-2000:] for one in self.daemons])

    def daemon(self, host, *words):
        self.daemons.append(self.start(host, *words, "-f"))

    def begin(self):
        monmap = self.folder / "monmap"
        self.run(self.first, "monmaptool", "--create", "--clobber", "--fsid", self.fsid, "--add", "a", self.first.ipv4, monmap)
        self.run(self.first, "ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.daemon(self.first, "ceph-mon", "-i", "a")
        self.run(self.second, "ceph", "--connect-timeout", "30", "status")
        for number, host in enumerate((self.first, self.second)):
            name = str(uuid.uuid4())
            self.run(self.second, "ceph", "osd", "new", name)
            self.run(self.second, "ceph", "osd", "crush", "add", f"osd.{number}", "1.0", "root=default", f"host=host{number}")
            (self.folder / f"osd{number}").mkdir()
            self.run(host, "ceph-osd", "-i", number, "--mkfs", "--osd-uuid", name)
            self.daemon(host, "ceph-osd", "-i", number)
        up = harness.poll_until(lambda: json.loads(self.json("osd", "stat"))["num_up_osds"] == 2, STEP_SECONDS, 0.5)
        if not up:
            raise RuntimeError(f"the OSDs do not come up\n{self.logs()}")
        self.run(self.second, "ceph", "osd", "pool", "create", "bench", "8", "8")

    def json(self, *words):
        output = self.run(self.second, "ceph", *words, "--format", "json")
        return output[output.index("{"):]

    def bench(self, kind, size, in_flight, seconds):
        """Runs rados bench: (operations per second, MB per second)"""
        words = ["rados", "bench", "-p", "bench", seconds, kind, "-t", in_flight]
        words += ["-b", size, "--no-cleanup"] if kind == "write" else []
        output = self.run(self.second, *words, seconds=seconds + STEP_SECONDS)
        found = {name: float(value) for name, value in re.findall(r"^(\w[\w ()/]*?):\s+([\d.]+)", output, re.MULTILINE)}
        return found["Average IOPS"], found["Bandwidth (MB/sec)"]

    def processor_seconds(self):
        """Processor time used by both OSDs so far."""
        ticks = 0
        for daemon in self.daemons[1:]:
            fields = pathlib.Path(f"/proc/{daemon.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / 100

    def end(self):
        for daemon in self.daemons:
            daemon.kill()


def objects_come_back(cluster, folder):
    """Writes and reads an object; returns a complaint, or None."""
    sent, received = folder / "sent", folder / "received"
    sent.write_bytes(bytes(range(256)) * 20000)
    cluster.run(cluster.second, "rados", "-p", "bench", "put", "one", sent)
    cluster.run(cluster.second, "rados", "-p", "bench", "get", "one", received)
    return None if received.read_bytes() == sent.read_bytes() else "the object is another"


def measure(judge, hosts, placement, messenger, by_address, options):
    first, second = hosts
    if placement == "one_host":
        second = first
    what = f"{placement}, {messenger}{', ms_async_rdma_cm' if by_address else ''}"
    figures = {}
    with tempfile.TemporaryDirectory(prefix="verbena-ceph-") as folder:
        cluster = Cluster(first, second, folder, messenger, by_address, options.set)
        try:
            cluster.begin()
            judge.say(f"{what}: an object is written and read", objects_come_back(cluster, pathlib.Path(folder)))
            for name, size, in_flight in LOADS:
                for kind in ("write", "rand"):
                    before = cluster.processor_seconds()
                    operations, megabytes = cluster.bench(kind, size, in_flight, options.seconds)
                    used = (cluster.processor_seconds() - before) / max(1, operations * options.seconds)
                    figures[f"{name} {kind}"] = (operations, megabytes, used * 1000)
                cluster.run(second, "rados", "-p", "bench", "cleanup")
            judge.say(f"{what}: rados bench", None)
        except RuntimeError as error:
            judge.say(f"{what}: rados bench", str(error))
        finally:
            cluster.end()
            for host in {first, second}:
                host.end_agents()
    return figures


def show(placement, columns):
    """Prints a row per load, with the figures of all messengers side by side."""
    print(f"\n{placement}: IOPS, MB/s, processor ms per operation of both OSDs")
    loads = sorted({load for figures in columns.values() for load in figures})
    print(f"{'':14}" + "".join(f"{name:>30}" for name in columns))
    for load in loads:
        cells = [figures.get(load) for figures in columns.values()]
        print(f"{load:14}" + "".join(f"{one[0]:>12.0f}{one[1]:>9.1f}{one[2]:>9.2f}" if one else f"{'-':>30}" for one in cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    parser.add_argument("--seconds", type=int, default=10, help="length of each rados bench")
    parser.add_argument("--placement", choices=PLACEMENTS, action="append")
    parser.add_argument("--messenger", choices=MESSENGERS, action="append")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a line of ceph.conf, such as ms_async_rdma_polling_us=0")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "ceph", "ceph-mon", "ceph-osd", "rados", "monmaptool")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        pair = hosts.two(mtu=MTU)
        for placement in options.placement or PLACEMENTS:
            columns = {}
            for messenger in options.messenger or MESSENGERS:
                for by_address in (False, True) if messenger == "rdma" else (False,):
                    name = messenger + (" by address" if by_address else "")
                    columns[name] = measure(judge, pair, placement, messenger, by_address, options)
            show(placement, columns)
    judge.exit()


if __name__ == "__main__":
    sys.exit(main())
