#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the table of the interoperability matrix: Verbena and the Linux kernel's rdma_rxe, with each as the server, over IPv4
and IPv6, with path MTUs of 256, 1024 and 4096 bytes.

    matrix_table.py --build build/release                       everything
    matrix_table.py --build build/release --part verbs          the completion statuses of correct and wrong requests only
    matrix_table.py --build build/release --share 1/4           a quarter of it
    matrix_table.py --build build/release --write docs/interop.md
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import sys
import time

import kernel_connections
import kernel_peer
import kernel_vm
import matrix_rows
from kernel_vm import harness

PARTS = ("verbs", "programs", "connections", "rsockets", "lossy")
COLUMNS = [(kernel_serves, family) for kernel_serves in (True, False) for family in ("ipv4", "ipv6")]
LOSS = "loss 1% duplicate 1% delay 1ms reorder 98% 50%"  # one packet in fifty is overtaken by later ones
PATIENCE = 240  # seconds for all requests of one connection of verbs_peer
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


@dataclasses.dataclass
class Row:
    part: str
    name: str
    statuses: str = ""
    cells: dict = dataclasses.field(default_factory=dict)  # column -> verdicts, one per run
    notes: list = dataclasses.field(default_factory=list)

    def add(self, column, manner, wrong):
        self.cells.setdefault(column, []).append((str(manner or ""), wrong))

    def cell(self, column):
        runs = self.cells.get(column)
        if not runs:
            return ""
        bad = [manner for manner, wrong in runs if wrong]
        words = [f"**failed** {' '.join(bad)}"] if bad else []
        good = [manner for manner, wrong in runs if not wrong]
        return ", ".join(words + ([" ".join(["ok", *good]).strip()] if good else []))


class Table:
    """The rows of the table, and the failures."""

    def __init__(self, machine, hosts, options):
        self.machine, self.hosts, self.options = machine, hosts, options
        self.rows, self.failures = {}, []
        self.manners = matrix_rows.ALL_MANNERS if options.full else matrix_rows.MANNERS

    def row(self, part, name):
        return self.rows.setdefault((part, name), Row(part, name))

    def say(self, row, column, manner, wrong):
        """Adds the result of a run; `wrong`: a complaint, or None."""
        row.add(column, manner, wrong)
        kernel_serves, family = column
        where = f"{'kernel' if kernel_serves else 'verbena'} serves, {family}{f', {manner}' if manner else ''}"
        took = time.monotonic() - self.options.began
        print(f"{took:6.1f} s  {row.part:12} {where:34} {row.name:64} {'FAILED' if wrong else 'ok'}", flush=True)
        if wrong:
            self.fail(f"{row.part}, {where}: {row.name}: {wrong}")

    def fail(self, why):
        self.failures.append(why)
        print(f"=== {why}", flush=True)

    def share(self, cases):
        """The cases in this run's share that --only selects."""
        part, parts = (int(word) for word in (self.options.share or "0/1").split("/"))
        return [case for number, case in enumerate(cases)
                if number % parts == part % parts and self.options.only in getattr(case, "name", self.options.only)]

    # ---- correct and wrong requests, by verbs_peer

    def peer_lines(self, family, mtu, kernel_serves):
        """({case: outcome} of the client, the same of the server, complaint). kernel_serves None: the kernel with itself."""
        port, ours = self.hosts.port(), self.machine.our_host
        theirs = ["/host/verbs_peer", "rxe0", self.machine.gids[family], mtu, port]
        mine = ["run", self.options.peer, f"rxe_{ours.netdev}", ours.gid_index(getattr(ours, family), f"rxe_{ours.netdev}"), mtu, port]
        only = self.options.only
        if kernel_serves is False:
            server = ours.verbena(*mine, "-", only)
        else:
            server = self.machine.start(self.hosts, *theirs, "-", f"'{only}'", seconds=PATIENCE)
        if kernel_serves:
            client = ours.verbena(*mine, kernel_vm.IPV4, only)
        else:
            to = "127.0.0.1" if kernel_serves is None else kernel_vm.OUR_IPV4
            client = self.machine.start(self.hosts, *theirs, to, f"'{only}'", seconds=PATIENCE)
        statuses = client.wait(PATIENCE), server.wait(10)
        for process in (client, server):
            process.kill()
        outputs = [dict(line.split("\t", 1) for line in process.output.splitlines() if "\t" in line) for process in (client, server)]
        wrong = None if statuses == (0, 0) else harness.Result(server, client, statuses[1], statuses[0]).report()
        return outputs, wrong

    def verbs(self):
        known = {(entry.case, entry.kernel_serves): entry for entry in matrix_rows.KNOWN}
        for family, mtu in self.share(matrix_rows.ALL_MANNERS):
            golden, broken = self.peer_lines(family, mtu, None)
            if broken:
                self.fail(f"the kernel with itself, {family}, {mtu}: {broken}")
            for kernel_serves in (True, False):
                found, broken = self.peer_lines(family, mtu, kernel_serves)
                if broken:
                    self.fail(f"verbs, kernel serves: {kernel_serves}, {family}, {mtu}: {broken}")
                for name in golden[0]:
                    row = self.row("verbs", name)
                    row.statuses = f"{statuses_of(golden[0][name])} / {statuses_of(golden[1].get(name, ''))}"
                    wrong = self.difference(row, known.get((name, kernel_serves)), [side.get(name, "") for side in golden],
                                            [side.get(name, "nothing") for side in found])
                    self.say(row, (kernel_serves, family), mtu, wrong)

    @staticmethod
    def difference(row, known, golden, found):
        """A complaint about outcomes that differ from the kernel's with itself and are not a known difference; else None."""
        wrong, differs = [], []
        for side, kernels, ours, expected in zip(("client", "server"), golden, found, (known and known.client, known and known.server)):
            if expected is None:
                # An end with known differences in its statuses may also have moved other bytes.
                same = statuses_of(kernels) == statuses_of(ours) if known else kernels == ours
                if not same:
                    wrong.append(f"{side}: '{ours}', between kernels '{kernels}'")
            elif statuses_of(ours) != expected:
                wrong.append(f"{side}: '{ours}', expected '{expected}', between kernels '{kernels}'")
            else:
                differs.append(f"{expected} at the {side}")
        if differs:
            row.notes = list(dict.fromkeys([*row.notes, f"Verbena: {', '.join(differs)}: {known.why}."]))
        return "; ".join(wrong) or None

    # ---- Debian's programs

    def run_programs(self, part, cases, options=()):
        for case in self.share(cases):
            row = self.row(part, " ".join(case.command()))
            if case.program.startswith("ib_"):
                case = dataclasses.replace(case, options=(*case.options, *options))
            for kernel_serves in (True, False):
                for family, mtu in self.manners[-1 if "-a" in case.options and not self.options.full else 0:]:
                    with_mtu = dataclasses.replace(case, options=(*case.options, "-m", str(mtu)), gid=None)
                    if case.program == "ibv_ud_pingpong" or "UD" in case.options:
                        with_mtu = dataclasses.replace(case, gid=None)  # the link's MTU decides
                    wrong, _ = kernel_peer.run_case(self.hosts, self.machine, with_mtu, family, kernel_serves)
                    self.say(row, (kernel_serves, family), mtu, wrong)

    def programs(self):
        self.run_programs("programs", matrix_rows.programs(), matrix_rows.PATIENT)
        row = self.row("programs", "ibv_xsrq_pingpong, perftest -c XRC")
        row.notes.append("rdma_rxe has no XRC.")

    def lossy(self):
        netdev = "eth0"
        status, output = self.machine.run(
            "set -e; modprobe -a sch_netem ifb sch_ingress act_mirred cls_matchall; ip link show ifb0 >/dev/null 2>&1 || "
            f"ip link add ifb0 type ifb; ip link set ifb0 mtu 9000 up; tc qdisc add dev {netdev} root netem {LOSS}; "
            f"tc qdisc add dev {netdev} ingress; tc filter add dev {netdev} parent ffff: matchall action mirred egress redirect dev ifb0; "
            f"tc qdisc add dev ifb0 root netem {LOSS}")
        if status:
            raise RuntimeError(f"no lossy link: {output}")
        try:
            self.run_programs("lossy", matrix_rows.lossy(), matrix_rows.LOSSY)
        finally:
            _, counts = self.machine.run(f"tc -s qdisc show dev {netdev}; tc -s qdisc show dev ifb0; tc qdisc del dev {netdev} root; "
                                         f"tc qdisc del dev {netdev} ingress; tc qdisc del dev ifb0 root")
            print(counts)

    def connections(self):
        for case in self.share(matrix_rows.connecting()):
            row = self.row("connections", f"{case.name} ({case.program})" if case.program not in case.name else case.name)
            for kernel_serves in (True, False):
                for family in case.families:
                    self.say(row, (kernel_serves, family), None,
                             kernel_connections.run_case(self.hosts, self.machine, case, family, kernel_serves))

    def rsockets(self):
        for case in self.share(matrix_rows.rsockets()):
            row = self.row("rsockets", " ".join([case.program, *case.options]))
            for kernel_serves in (True, False):
                self.say(row, (kernel_serves, case.family), None,
                         kernel_connections.run_rsockets_case(self.hosts, self.machine, case, kernel_serves))

    # ---- output

    def markdown(self):
        notes, lines = {}, []
        heads = [f"{'V to K' if kernel_serves else 'K to V'}, {family.replace('ip', 'IP')}" for kernel_serves, family in COLUMNS]
        for part in PARTS:
            rows = [row for row in self.rows.values() if row.part == part]
            if not rows:
                continue
            last = "client / server, between kernels" if part == "verbs" else ""
            lines += ["", f"| {part} | {' | '.join(heads)} | {last} |", "|---" * (len(COLUMNS) + 2) + "|"]
            for row in rows:
                marks = [f"({notes.setdefault(note, len(notes) + 1)})" for note in row.notes]
                cells = [row.cell(column) or "–" for column in COLUMNS]
                lines.append(f"| {row.name} | {' | '.join(cells)} | {' '.join([row.statuses, *marks]).strip()} |")
        lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
        return "\n".join(lines).strip()


def statuses_of(outcome):
    """The outcome without the hash of the moved bytes."""
    return re.sub(r" ?#[0-9a-f]{8}", "", outcome)


def write_into(path, table):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    pathlib.Path(path).write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--only", default="", help="run only rows whose name contains this")
    parser.add_argument("--full", action="store_true", help="run each program with every path MTU over both address families")
    parser.add_argument("--share", default=os.environ.get("VERBENA_CONFORMANCE_SHARE", ""), metavar="K/N",
                        help="run the K-th of N parts of the rows; for verbs: all rows, in a part of the variants")
    parser.add_argument("--write", metavar="FILE", help="write the table into FILE, between its two marks")
    options = parser.parse_args()
    options.began = time.monotonic()
    harness.require_root()
    kernel_vm.image()

    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts, 9000) as machine:
        peer = pathlib.Path(options.build).resolve() / "tests" / "verbs_peer"
        # Where an ordinary user and the kernel's machine can reach it.
        options.peer = shutil.copy(peer, machine.shared / "verbs_peer")
        machine.shared.chmod(0o755)
        table = Table(machine, hosts, options)
        for part in options.part or PARTS:
            getattr(table, part)()
    print(f"\n{table.markdown()}\n")
    if options.write:
        write_into(options.write, table.markdown())
    runs = sum(len(cell) for row in table.rows.values() for cell in row.cells.values())
    print(f"\n{len(table.rows)} rows, {runs} runs, {len(table.failures)} failures, {time.monotonic() - options.began:.0f} s")
    sys.exit(1 if table.failures or not runs else 0)


if __name__ == "__main__":
    main()
