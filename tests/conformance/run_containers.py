#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the table of docs/containers.md row by row: number of agents in each setup, route (shared memory or wire), state of
the port, and refusals. Uses podman if it works here; otherwise the test creates the same namespaces itself.

    run_containers.py --build build/release
"""

import contextlib
import re
import shutil

import containers
import harness
from containers import USER, Container
from run_users import as_user

OTHER_USER = USER - 1
ALL = ("pid", "mount", "ipc")


class Bubblewrap(harness.Host):
    """Each program runs in its own bubblewrap sandbox: the host's files, with its own namespaces."""

    def __init__(self, host, *options):  # pylint: disable=super-init-not-called
        self.__dict__.update(host.__dict__)
        self.options = options

    def start(self, command, user=None, environment=None):
        sandbox = ["bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "--unshare-ipc",
                   *self.options]
        return harness.Host.start(self, command, as_user(USER) + sandbox, environment)

    def end(self):
        pass


class Setups:
    """Creates the containers of a setup, and ends them."""

    def __init__(self, judge, hosts):
        self.judge = judge
        self.first, self.second = hosts.two()
        self.podman = containers.has_podman()
        self.made = []

    def container(self, host, uid=USER, private=ALL, options=()):
        made = containers.Podman(host, uid, options) if self.podman else Container(host, private, uid)
        self.made.append(made)
        return made

    def by_hand(self, host, private, own_files=True):
        self.made.append(Container(host, private, USER, own_files))
        return self.made[-1]

    @contextlib.contextmanager
    def row(self, name):
        self.name = name
        try:
            yield
        except RuntimeError as error:
            self.say("made", str(error))
        for container in self.made:
            container.end()
        self.made.clear()
        for host in (self.first, self.second):
            host.end_agents()
            host.await_free_port()

    def say(self, what, wrong):
        self.judge.say(f"{self.name}: {what}", wrong)

    def agents(self, host, count):
        found = len(containers.agents_of(host))
        self.say(f"{count} agents", None if found == count else f"{found} agents")

    def port(self, container, wanted):
        status, output = container.run("ibv_devinfo", seconds=20)
        state = re.search(r"state:\s+PORT_(ACTIVE|DOWN)", output)
        self.say(f"port {wanted}", None if state and state.group(1) == wanted else f"exit {status}\n{output}")

    def reach(self, server, client, route):
        """Programs in the two containers must reach each other, by this route."""
        result = harness.pair(server, client, ["ib_write_bw", "-F", "-n", "200", "-s", "4096"])
        self.say("programs reach each other", None if result.good else result.report())
        found = self.routes(server, client)
        self.say(f"by {route}", None if found == {route} else f"by {found}")

    def routes(self, server, client):
        """The routes of their queue pairs, once both agree or after 15 seconds."""
        serving, calling = harness.start_pair(server, client, "-D", "20")

        def now():
            pairs = [pair for host in (server, client) for process in host.status()["processes"] for pair in process["queue_pairs"]]
            return {pair["route"] for pair in pairs if pair["counters"]["sent_packets"] > 10000}
        harness.poll_until(lambda: not calling.running() or len(now()) == 1, 15, step=0.2)
        found = now()
        for process in (serving, calling):
            process.kill()
        return found

    def refused(self, server, client):
        """The program must say why it cannot connect, and `verbena status` must say who has the port."""
        result = harness.pair(server, client, ["ib_write_bw", "-F", "-n", "200", "-s", "4096"], seconds=30)
        text = result.report()
        self.say("refused, with the reason", None if not result.good and "state is Down" in text else text)
        held = client.verbena("run", "ibv_asyncwatch")  # keeps its agent running
        harness.poll_until(lambda: "async event" in held.output or not held.running(), 10)
        _, output = client.command("status")
        held.kill()
        self.say("status says who has the port", None if "UDP port 4791 is taken" in output else output)


def own_networks(setups):
    with setups.row("a network of its own"):
        one, other = setups.container(setups.first, 0), setups.container(setups.second, 0)
        setups.reach(one, other, "wire")
        setups.agents(setups.first, 1)
        setups.port(one, "ACTIVE")


def host_network(setups):
    with setups.row("--network host, root's agent outside"):
        setups.first.start_agent()
        inside = setups.container(setups.first, 0)
        setups.reach(inside, setups.first, "local")
        setups.agents(setups.first, 1)
        setups.port(inside, "ACTIVE")


def pod_of_one_user(setups):
    with setups.row("pod, one user"):
        one, other = setups.container(setups.first), setups.container(setups.first)
        setups.reach(one, other, "local")
        setups.agents(setups.first, 1)
        setups.port(other, "ACTIVE")


def pod_of_two_users(setups):
    with setups.row("pod, two users"):
        one, other = setups.container(setups.first), setups.container(setups.first, OTHER_USER)
        setups.port(one, "ACTIVE")
        held = one.verbena("run", "ibv_asyncwatch")  # keeps its agent running
        setups.port(other, "DOWN")
        setups.agents(setups.first, 2)
        setups.refused(one, other)
        held.kill()
    with setups.row("pod, two users, root's agent in it"):
        sidecar = setups.container(setups.first, 0)
        agent = sidecar.verbena("agent")
        harness.poll_until(lambda: not agent.running() or sidecar.command("status")[1].startswith("Agent "), 20)
        one, other = setups.container(setups.first), setups.container(setups.first, OTHER_USER)
        setups.reach(one, other, "local")
        setups.agents(setups.first, 1)
        setups.port(other, "ACTIVE")


def rootless(setups):
    private = (*ALL, "user")
    with setups.row("rootless, a network of its own"):
        one, other = setups.by_hand(setups.first, private), setups.by_hand(setups.second, private)
        setups.reach(one, other, "wire")
        setups.agents(setups.first, 1)
        setups.port(one, "ACTIVE")
    with setups.row("rootless, --network host, the host's directory not mounted"):
        setups.first.start_agent()
        inside = setups.by_hand(setups.first, private)
        setups.port(inside, "DOWN")
        setups.refused(inside, inside)
        setups.agents(setups.first, 2)
    with setups.row("rootless, --network host, with the host's directory"):
        setups.first.start_agent()
        inside = setups.by_hand(setups.first, private, own_files=False)
        setups.port(inside, "ACTIVE")
        setups.reach(inside, Container(setups.first, ()), "local")
        setups.agents(setups.first, 1)


def systemd(setups):
    with setups.row("PrivateNetwork"):
        setups.first.start_agent()
        inside = setups.by_hand(setups.second, ())
        setups.port(inside, "ACTIVE")
        setups.agents(setups.first, 1)
        setups.agents(setups.second, 1)
    with setups.row("PrivateUsers"):
        setups.first.start_agent()
        inside = setups.by_hand(setups.first, ("users",))
        setups.reach(inside, Container(setups.first, ()), "local")
        setups.agents(setups.first, 1)
        setups.port(inside, "ACTIVE")


def user_namespaces(setups):
    for name, private in (("unshare -Ur", ("user",)), ("unshare -U", ("unmapped",))):
        with setups.row(f"{name}, root's agent outside"):
            setups.first.start_agent()
            inside = setups.by_hand(setups.first, private)
            setups.reach(inside, Container(setups.first, ()), "local")
            setups.agents(setups.first, 1)
    with setups.row("unshare -Ur, the user's agent"):
        inside = setups.by_hand(setups.first, ("user",))
        setups.reach(inside, Container(setups.first, ()), "local")
        setups.agents(setups.first, 1)
    with setups.row("unshare -U, the user's agent"):
        outside = Container(setups.first, ())
        held = outside.verbena("run", "ibv_asyncwatch")
        harness.poll_until(lambda: "async event" in held.output or not held.running(), 10)
        setups.port(setups.by_hand(setups.first, ("unmapped",)), "DOWN")
        setups.agents(setups.first, 2)
        held.kill()


def bubblewrap(setups):
    if not shutil.which("bwrap"):
        print("bubblewrap: not here")
        return
    with setups.row("bubblewrap"):
        setups.first.start_agent()
        setups.reach(Bubblewrap(setups.first), setups.first, "local")
        setups.agents(setups.first, 1)
    with setups.row("bubblewrap --unshare-net"):
        setups.first.start_agent()
        alone = Bubblewrap(setups.first, "--unshare-net")
        setups.port(alone, "ACTIVE")
        setups.agents(setups.first, 1)


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "unshare", "nsenter", "ib_write_bw", "ibv_devinfo", "ibv_asyncwatch")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        setups = Setups(judge, hosts)
        print(f"containers are made {'by podman' if setups.podman else 'by hand'}")
        for row in (own_networks, host_network, pod_of_one_user, pod_of_two_users, rootless, systemd, user_namespaces, bubblewrap):
            row(setups)
    judge.exit()


if __name__ == "__main__":
    main()
