# SPDX-License-Identifier: Apache-2.0
"""A fast link without losses of its own, made of the kernel's parts: what far.py measures over from 10 Gb/s on.

The emulator copies each frame through a process. At 10 Gb/s that takes a processor of its own, which a small machine lacks: what
is measured then is the emulator. So here the way of the data is a cable (veth) whose sender has a token bucket (tc's tbf) for
the rate and the queue, and the delay is all on the way back, which carries acknowledgements alone: that goes through the emulator.
Neither end can tell: all that it sees is how long a packet and its answer take together.
"""

import json

import harness

# What a token bucket gives at once: it must pass a super-frame, which is up to 64 KB and its headers.
BURST_BYTES = 131072


def tc(namespace, *words):
    return harness.sh("ip", "netns", "exec", namespace, "tc", *words)


class KernelLink:
    """Limits the cable between two hosts, of which the first gets most of what is sent. Rate in Mb/s, queue in bytes, round trip
    in ms."""

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
        """All that `to` sends is taken to the emulator, and what comes out of it comes in at the cable's other end."""
        emulator = hosts.link_emulator(to.namespace, "back0", "back1", ["--delay", round_trip])
        harness.sh("ip", "-n", to.namespace, "link", "set", "back1", "netns", from_.namespace)
        # Of the same address: the host there would else take packets for somebody else's.
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
        """What the link has counted, as an emulator's end()."""
        bucket = json.loads(tc(self._from.namespace, "-s", "-j", "qdisc", "show", "dev", "eth0"))[0]
        counted = {"there": {"packets": bucket["packets"], "bytes": bucket["bytes"], "overflowed": bucket["drops"]}}
        if self._emulator:
            counted["back"] = self._emulator.end()["there"]
        return counted
