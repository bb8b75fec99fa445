#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's ibv_asyncwatch over Verbena while its network device goes down and up and loses and gets addresses, and its
link is deleted. Checks which events it prints, and in which order.

    run_asyncwatch.py --build build/release
"""

import re
import sys

import harness

SECONDS = 10
EVENT = re.compile(r"event_type (IBV_EVENT_\w+) \((\d+)\), port (\d+)")


class Watch:
    """A running ibv_asyncwatch, and the number of its events that have been checked."""

    def __init__(self, host):
        self.process = host.verbena("run", "ibv_asyncwatch", "-d", f"rxe_{host.netdev}")
        self.seen = 0
        if not harness.poll_until(lambda: "async event FD" in self.process.output, SECONDS):
            raise RuntimeError(f"ibv_asyncwatch does not begin:\n{self.process.output}")

    def events(self):
        return EVENT.findall(self.process.output)

    def await_event(self, name, port="1"):
        """Waits for an event, skipping others before it; returns whether it came."""
        def found():
            for index, (kind, _, of_port) in enumerate(self.events()[self.seen:], self.seen + 1):
                if kind == name and of_port == port:
                    return index
            return None
        index = harness.poll_until(found, SECONDS)
        self.seen = index or self.seen
        return index is not None


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ibv_asyncwatch")

    with harness.Hosts(options.build) as hosts:
        host, _ = hosts.two()
        watch = Watch(host)

        def ip(*words):
            return lambda: harness.sh("ip", "-n", host.namespace, *words)

        def delete_link():
            status, output = host.command("link", "delete", f"rxe_{host.netdev}")
            if status != 0:
                raise RuntimeError(f"verbena link delete: {status}\n{output}")

        steps = (
            ("device down", ip("link", "set", host.netdev, "down"), "IBV_EVENT_PORT_ERR"),
            ("device up", ip("link", "set", host.netdev, "up"), "IBV_EVENT_PORT_ACTIVE"),
            ("address added", ip("addr", "add", "10.9.77.1/24", "dev", host.netdev), "IBV_EVENT_GID_CHANGE"),
            ("address deleted", ip("addr", "del", "10.9.77.1/24", "dev", host.netdev), "IBV_EVENT_GID_CHANGE"),
            ("link deleted", delete_link, "IBV_EVENT_DEVICE_FATAL"),
        )
        failures = []
        for what, act, event in steps:
            act()
            good = watch.await_event(event)
            print(f"{what:20} {event:24} {'ok' if good else 'FAILED'}", flush=True)
            if not good:
                failures.append(f"{what}: no {event}")
        # Deleting the link is the last event: ibv_get_async_event() then fails, and the program ends with status 1.
        if watch.process.wait(SECONDS) != 1:
            failures.append("ibv_asyncwatch does not end when its device is gone")
        for failure in failures:
            print(f"\n=== {failure}\n{watch.process.output}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
