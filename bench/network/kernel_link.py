# SPDX-License-Identifier: Apache-2.0
"""Emulates a fast link without random losses by means of the kernel. far.py uses it from 10 Gb/s on.

The emulator copies each frame through a process. At 10 Gb/s it needs a processor of its own, which a small machine lacks, so a
measurement would show the emulator's limit. Here data travels over a cable (veth) whose sender has a token bucket (tc's tbf) for
rate and queue. The emulator delays only the opposite direction, by the whole round trip; that direction carries acknowledgements
alone. The ends see no difference, since they know only the time from a packet to its acknowledgement.
"""

import json

import harness

# Burst of the token bucket: at least one GSO super-packet, which has up to 64 KB and its headers.
BURST_BYTES = 131072


def tc(namespace, *words):
    return harness.sh("ip", "netns", "exec", namespace, "tc", *words)


class KernelLink:
    """Limits the cable between two hosts. Data flows from `from_` to `to`. Rate in Mb/s, queue in bytes, round trip in ms."""

    def __init__(self, hosts, to, from_, rate, queue, round_trip):
        self._from = from_
        self._emulator = None
        for host in (to, from_):
            tc(host.namespace, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{rate}mbit", "burst", BURST_BYTES,
               "limit", queue)
        if round_trip:
            self._emulator = self._way_back(hosts, to, from_, round_trip)

    @staticmethod
    def _way_back(hosts, to, from_, round_trip):
        """Redirects all frames that `to` sends through the emulator to the other end of the cable."""
        emulator = hosts.link_emulator(to.namespace, "back0", "back1", ["--delay", round_trip])
        harness.sh("ip", "-n", to.namespace, "link", "set", "back1", "netns", from_.namespace)
        # back1 takes eth0's MAC address. Otherwise the host would drop the frames as addressed to another host.
        harness.sh("ip", "-n", from_.namespace, "link", "set", "back1", "address", from_.mac())
        for host, device in ((to, "back0"), (from_, "back1")):
            harness.set_in_kernel(host.namespace, f"ipv6/conf/{device}/disable_ipv6", 1)
            harness.sh("ip", "-n", host.namespace, "link", "set", device, "up")
        for host, device, passes, onto, enters in ((to, "eth0", "egress", "back0", "egress"),
                                                   (from_, "back1", "ingress", "eth0", "ingress")):
            tc(host.namespace, "qdisc", "add", "dev", device, "clsact")
            tc(host.namespace, "filter", "add", "dev", device, passes, "protocol", "all", "u32", "match", "u32", 0, 0,
               "action", "mirred", enters, "redirect", "dev", onto)
        return emulator

    def end(self):
        """Returns the link's counters, in the format of the emulator's end()."""
        bucket = json.loads(tc(self._from.namespace, "-s", "-j", "qdisc", "show", "dev", "eth0"))[0]
        counted = {"there": {"packets": bucket["packets"], "bytes": bucket["bytes"], "overflowed": bucket["drops"]}}
        if self._emulator:
            counted["back"] = self._emulator.end()["there"]
        return counted
