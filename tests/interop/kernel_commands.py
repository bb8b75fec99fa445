#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Verbena's commands and counters with the Linux kernel's rdma_rxe: `verbena doctor PEER` of a host with rxe;
`verbena link show --json` and rxe's own link; the counters of both ends after the same requests in both directions; and
packets longer than the link's MTU.

    kernel_commands.py --build build/release [-v]
"""

import argparse
import functools
import json
import pathlib
import re
import shutil
import sys

import kernel_vm
from kernel_vm import harness

PATIENCE = 60
PORT = "/sys/class/infiniband/rxe0/ports/1"

# Counters that only rxe has.
ONLY_RXE = {
    "ack_deferred",  # number of times that its completer's tasklet was scheduled for more than one response
    "send_err",      # the network did not accept a packet; Verbena counts these per process, not per link (`verbena status --json`)
}

# Each case posts one SEND, WRITE, READ or atomic, followed by an empty SEND, with a path MTU of 1024. Columns: packets of the
# requests, their bytes from the IP header to the ICRC, responses of READs and atomics, SENDs, receives. Headers: IPv4 20, UDP 8,
# BTH 12, ICRC 4.
HEADERS = 44
TRAFFIC = [
    ("send with immediate", 2, 2 * HEADERS + 4 + 64, 0, 2, 2),
    ("send, 1 byte", 2, 2 * HEADERS + 4, 0, 2, 2),
    ("write, 17003 bytes", 18, 18 * HEADERS + 16 + 17004, 0, 1, 1),
    ("write with immediate", 2, 2 * HEADERS + 16 + 4 + 64, 0, 1, 2),
    ("read, 17005 bytes", 2, 2 * HEADERS + 16, 17, 1, 1),
    ("fetch and add", 2, 2 * HEADERS + 28, 1, 1, 1),
]


# Failures: counters of the requester, and of the responder. They are the same for Verbena and the kernel.
FAILURES = [
    ("send, receiver not ready, 3 retries", {"rcvd_rnr_err": 4, "retry_rnr_exceeded_err": 1, "sent_pkts": 4}, {"send_rnr_err": 4}),
    ("send, nobody answers", {"retry_exceeded_err": 1, "completer_retry_err": 1, "sent_pkts": 4}, {"rcvd_pkts": 0}),
]
# These counters must not change where nothing is lost.
ERRORS = ("duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "rcvd_seq_err", "retry_exceeded_err",
          "retry_rnr_exceeded_err", "completer_retry_err")


def who(kernel_serves):
    return "the kernel serves" if kernel_serves else "Verbena serves"


class Ends:
    """Both ends, each with a verbs_peer."""

    def __init__(self, hosts, machine, peer, verbose):
        self.hosts, self.machine, self.peer, self.verbose = hosts, machine, peer, verbose
        self.ours = machine.our_host
        self.device = f"rxe_{self.ours.netdev}"

    def requests(self, case, kernel_serves, family="ipv4", mtu=1024):
        """Runs the case of this name; returns the output of both ends."""
        only = f"={case}"
        port = self.hosts.port()
        theirs = ["/host/verbs_peer", "rxe0", self.machine.gids[family], mtu, port]
        mine = ["run", self.peer, self.device, self.ours.gid_index(getattr(self.ours, family), self.device), mtu, port]
        if kernel_serves:
            server = self.machine.start(self.hosts, *theirs, "-", f"'{only}'", seconds=PATIENCE)
            client = self.ours.verbena(*mine, kernel_vm.IPV4, only)
        else:
            server = self.ours.verbena(*mine, "-", only)
            client = self.machine.start(self.hosts, *theirs, kernel_vm.OUR_IPV4, f"'{only}'", seconds=PATIENCE)
        client.wait(PATIENCE)
        server.wait(10)
        for process in (client, server):
            process.kill()
        return client.output, server.output

    def kernels(self):
        _, text = self.machine.run(f"cd {PORT}/hw_counters && grep . *")
        return {name: int(value) for name, value in (line.split(":") for line in text.split())}

    def link(self):
        return json.loads(self.ours.command("link", "show", "--json", user=[])[1])[0]

    def mine(self):
        link = self.link()
        return {**link["counters"], **link["hw_counters"]}

    def counted(self, case, kernel_serves):
        """The increase of each counter: (ours, the kernel's)."""
        before = self.mine(), self.kernels()
        self.requests(case, kernel_serves)
        after = self.mine(), self.kernels()
        return tuple({name: new[name] - old[name] for name in new} for old, new in zip(before, after))


def differences(pairs):
    """{name: (expected, found)} of the pairs that differ."""
    wrong = {what: pair for what, pair in pairs.items() if pair[0] != pair[1]}
    return "\n".join(f"{what}: expected {expected}, found {found}" for what, (expected, found) in wrong.items()) or None


def check_doctor(judge, ends):
    def expect(what, address, wanted_status, *words):
        status, output = ends.ours.command("doctor", address, user=[])
        good = status == wanted_status and all(word in output for word in words)
        judge.say(f"doctor PEER: {what}", None if good else f"{status}, wanted {wanted_status} and {words}\n{output}")

    for address in (kernel_vm.IPV4, kernel_vm.IPV6):
        expect(f"a kernel's rxe, {address}", address, 0, f"{address} answers on UDP port 4791", "RoCEv2 of a kernel",
               "a path MTU of 1024 fits on the way")
    # The link is deleted, but the kernel module keeps UDP port 4791.
    ends.machine.run("rdma link delete rxe0")
    expect("rdma_rxe without a link", kernel_vm.IPV4, 1, "nothing comes back from its UDP port 4791", "'rdma link'")
    ends.machine.run("modprobe -r rdma_rxe")
    expect("no rdma_rxe", kernel_vm.IPV4, 1, "nobody listens on UDP port 4791")
    ends.machine.run("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")


def guid_of(mac):
    """The EUI-64 of an Ethernet address (RFC 4291, appendix A)."""
    octets = [int(octet, 16) for octet in mac.split(":")]
    return "".join(f"{octet:02x}" for octet in (octets[0] ^ 2, *octets[1:3], 0xff, 0xfe, *octets[3:]))


def check_link(judge, ends):
    """Compares the two links. Their network devices have the same MTU and the same kinds of addresses."""
    netdev = "/sys/class/net/eth0"
    _, text = ends.machine.run(f"rdma link show rxe0/1 -j; cat /sys/class/infiniband/rxe0/node_guid {netdev}/address {netdev}/mtu "
                               f"{PORT}/gid_attrs/types/0; ibv_devinfo -v -d rxe0")
    shown, guid, mac, mtu, gid_type, rest = text.split("\n", 5)
    rxe, link = json.loads(shown)[0], ends.link()
    gids = [gid.split(",")[0] for gid in re.findall(r"GID\[ *\d+\]:\s+(.*)", rest)]
    judge.say("link show --json: state, MTUs, type of GIDs", differences({
        "state": (rxe["state"], link["state"]), "mtu": (int(mtu), link["mtu"]),
        "active_mtu": (int(re.search(r"active_mtu:\s+(\d+)", rest)[1]), link["active_mtu"]),
        "type of GIDs": (gid_type, link["gids"][0]["type"])}))
    judge.say("link show --json: GUID of the netdev's address", differences({
        "rxe's": (guid_of(mac), guid.replace(":", "")), "ours": (guid_of(link["mac"]), link["guid"].replace(":", ""))}))
    judge.say("link show --json: GIDs of the netdev's addresses", differences({
        "rxe's": (["fe80::5054:ff:fe77:1", f"::ffff:{kernel_vm.IPV4}", kernel_vm.IPV6], gids),
        "ours": ([f"::ffff:{kernel_vm.OUR_IPV4}", kernel_vm.OUR_IPV6], [gid["gid"] for gid in link["gids"]][1:])}))
    judge.say("link show --json: netdev", differences({
        "ours": (ends.ours.netdev, link["netdev"]), "rxe's": ("eth0", rxe["netdev"])}))


def check_names(judge, ends):
    missing = set(ends.kernels()) - set(ends.link()["hw_counters"]) - ONLY_RXE - {"lifespan"}
    judge.say("hw_counters: rxe's names", f"not there: {missing}" if missing else None)
    files = set(ends.ours.run("ls", f"/sys/class/infiniband/{ends.device}/ports/1/hw_counters")[1].split())
    judge.say("hw_counters: a file for each, and lifespan", differences({"files": ({*ends.link()["hw_counters"], "lifespan"}, files)}))
    statistic = json.loads(ends.ours.run("rdma", "statistic", "show", "-j")[1])[0]
    judge.say("rdma statistic: the same names", differences(
        {"names": (set(ends.link()["hw_counters"]), set(statistic) - {"ifname", "port"})}))


def judge_counters(judge, ends, case, kernel_serves, verdict):
    """verdict(ours, the kernel's) returns a complaint or None. It gets three tries, since on a busy machine a timer may fire
    before the answer arrives."""
    wrong = None
    for _ in range(3):
        ours, kernels = ends.counted(case, kernel_serves)
        if ends.verbose:
            print(*({name: value for name, value in side.items() if value} for side in (ours, kernels)), sep="\n")
        wrong = verdict(ours, kernels)
        if not wrong:
            break
    judge.say(f"counters, {who(kernel_serves)}: {case}", wrong)


def traffic_verdict(kernel_serves, numbers, ours, kernels):
    packets, octets, responses, sends, receives = numbers
    there, back, counted = ("xmit", "rcv", "rcvd_pkts") if kernel_serves else ("rcv", "xmit", "sent_pkts")
    asks, answers = (ours, kernels) if kernel_serves else (kernels, ours)
    return differences({
        "request packets": (packets, ours[f"port_{there}_packets"]), "at the kernel's end": (packets, kernels[counted]),
        "octets": (octets, ours["sent_bytes" if kernel_serves else "rcvd_bytes"]), "words": (octets // 4, ours[f"port_{there}_data"]),
        "rdma_sends": (sends, asks["rdma_sends"]), "rdma_recvs": (receives, answers["rdma_recvs"]),
        "responses": (True, ours[f"port_{back}_packets"] >= responses),
        "errors": (0, sum(side[name] for side in (ours, kernels) for name in ERRORS)),
    })


def error_verdict(kernel_serves, requester, responder, ours, kernels):
    asks, answers = (ours, kernels) if kernel_serves else (kernels, ours)
    return differences({name: (value, side[name]) for side, wanted in ((asks, requester), (answers, responder))
                        for name, value in wanted.items()})


def check_counters(judge, ends):
    for kernel_serves in (True, False):
        for case, *numbers in TRAFFIC:
            judge_counters(judge, ends, case, kernel_serves, functools.partial(traffic_verdict, kernel_serves, numbers))
        for case, requester, responder in FAILURES:
            judge_counters(judge, ends, case, kernel_serves, functools.partial(error_verdict, kernel_serves, requester, responder))


def check_fragments(judge, ends):
    """A path MTU of 4096 over a link whose MTU is 1500. The kernel accepts packets in IP fragments, but sends none (EMSGSIZE)."""
    for family in ("ipv4", "ipv6"):
        for case, kernel_serves in (("send, 17001 bytes", True), ("write, 17003 bytes", True), ("read, 17005 bytes", False)):
            before = ends.kernels()
            client, server = ends.requests(case, kernel_serves, family, 4096)
            after = ends.kernels()
            good = re.search(rf"^{case}\tSUCCESS SUCCESS \(RTS\)", client, re.MULTILINE)
            # Nothing may arrive out of order or with a wrong ICRC.
            good = good and all(after[name] == before[name] for name in ("out_of_seq_request", "duplicate_request"))
            judge.say(f"fragments, {family}, {who(kernel_serves)}: {case}",
                      None if good else f"{client}\n{server}\n{before}\n{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the counters")
    options = parser.parse_args()
    harness.require_root()
    kernel_vm.image()
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts, kernel_vm.KernelVm(hosts, 1500, processors=1, megabytes=768) as machine:
        peer = shutil.copy(pathlib.Path(options.build).resolve() / "tests" / "verbs_peer", machine.shared / "verbs_peer")
        machine.shared.chmod(0o755)  # for ordinary users
        machine.our_host.start_agent()
        ends = Ends(hosts, machine, peer, options.verbose)
        check_doctor(judge, ends)
        check_link(judge, ends)
        check_names(judge, ends)
        check_counters(judge, ends)
        check_fragments(judge, ends)
    judge.exit()


if __name__ == "__main__":
    sys.exit(main())
