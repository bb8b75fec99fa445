#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's infiniband-diags over Verbena as an ordinary user, on three hosts at one switch. Checks the programs' output
about their own port and about the fabric of the three hosts, and that --no-discovery hides a host.

    run_fabric.py --build build/release
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import tempfile

import harness

SWITCH_LID = 1
NOBODYS_LID = 4711
PROGRAMS = ("ibstat", "ibstatus", "ibaddr", "ibping", "ibhosts", "ibswitches", "ibnodes", "iblinkinfo", "ibnetdiscover",
            "ibqueryerrors", "perfquery", "saquery", "smpquery", "sminfo", "ibtracert", "ibroute", "ibsysstat", "vendstat")

# Programs for the own port: command, regular expressions that the output must match, exit status. {device} is the host's device;
# {lid} and {guid} are its port's.
OWN_PORT = (
    (("ibstat",), (r"CA '{device}'", r"State: Active", r"Base lid: {lid}\b", r"SM lid: 1\b", r"Port GUID: {guid}",
                   r"Link layer: Ethernet"), 0),
    (("ibstat", "-l"), (r"^{device}$",), 0),
    (("ibstatus",), (r"Infiniband device '{device}' port 1", r"state:\s+4: ACTIVE", r"link_layer:\s+Ethernet"), 0),
    (("ibaddr",), (r"GID fe80::", r"LID start 0x{lid:x} "), 0),
    (("sminfo",), (r"sm lid 1 .*SMINFO_MASTER",), 0),
    (("smpquery", "-D", "nodeinfo", "0"), (r"NodeType:\.+Channel Adapter", r"PortGuid:\.+{guid}"), 0),
    (("smpquery", "-D", "nodedesc", "0"), (r"\.+\S+ {device}$",), 0),
    (("smpquery", "-D", "portinfo", "0"), (r"Lid:\.+{lid}$", r"LinkState:\.+Active"), 0),
    (("smpquery", "-D", "switchinfo", "0,1"), (r"EnhancedPort0:\.+1",), 0),
    (("smpquery", "-D", "pkeys", "0"), (r"0: 0xffff 0x0000",), 0),
    (("smpquery", "nodeinfo", str(SWITCH_LID)), (r"NodeType:\.+Switch",), 0),
    (("perfquery",), (r"Lid {lid} port 1", r"PortXmitData:\.+\d+"), 0),
    (("perfquery", "-x"), (r"extended counters", r"PortUnicastRcvPkts:\.+\d+"), 0),
    (("saquery", "-c"), (r"SA ClassPortInfo",), 0),
    (("saquery", "-g"), (r"0x000c.*combination is not supported",), 5),
    (("vendstat", "-N", str(SWITCH_LID)), (r"failed",), 255),
)


class Port:
    """A host's port, as the host itself shows it."""

    def __init__(self, host):
        self.host = host
        self.device = f"rxe_{host.netdev}"
        _, output = host.run("ibstat", self.device)
        self.lid = int(re.search(r"Base lid: (\d+)", output).group(1))
        self.guid = re.search(r"Port GUID: (0x[0-9a-f]+)", output).group(1)

    def wanted(self, pattern):
        """Fills the port's values into a pattern; other braces stay."""
        for name, value in (("{device}", self.device), ("{lid:x}", f"{self.lid:x}"), ("{lid}", str(self.lid)),
                            ("{guid}", self.guid)):
            pattern = pattern.replace(name, value)
        return pattern

    def counters(self, *options):
        """(PortXmitData, PortRcvData) from perfquery -x."""
        _, output = self.host.run("perfquery", "-x", *options)
        found = [re.search(rf"{name}:\.+(\d+)", output) for name in ("PortXmitData", "PortRcvData")]
        return [int(each.group(1)) for each in found] if all(found) else None


def fault(result, patterns, wanted_status=0):
    """A complaint about a program's exit status and output, or None."""
    status, output = result
    if status != wanted_status:
        return f"exit status {status}, not {wanted_status}\n{output}"
    missing = [pattern for pattern in patterns if not re.search(pattern, output, re.MULTILINE)]
    return f"not there: {missing}\n{output}" if missing else None


def judge_own_port(judge, port):
    for words, patterns, status in OWN_PORT:
        patterns = [port.wanted(pattern) for pattern in patterns]
        judge.say(" ".join(words), fault(port.host.run(*words), patterns, status))


def judge_fabric(judge, ports):
    """Every host must see all hosts at one switch."""
    adapters = [rf'^\[1\]\({int(port.guid, 16):x}\).*lid {port.lid} ' for port in ports]
    for number, port in enumerate(ports, 1):
        def say(what, *patterns, name=f"host {number}", host=port.host):
            judge.say(f"{name}: {' '.join(what)}", fault(host.run(*what), patterns))

        say(("ibnetdiscover",), r"^Switch\s+3 ", *adapters)
        say(("ibhosts",), *(rf"^Ca\s+: {each.guid} ports 1" for each in ports))
        say(("ibswitches",), r"^Switch\s+: 0x[0-9a-f]+ ports 3 .*lid 1 ")
        say(("ibnodes",), r"^Switch\s+:", *(rf"^Ca\s+: {each.guid}" for each in ports))
        say(("iblinkinfo", "--switches-only"), *(rf"Active/\s+LinkUp\)==>\s+{each.lid}\s" for each in ports))
        say(("ibqueryerrors",), r"4 nodes checked, 0 bad nodes found")
        say(("ibroute", str(SWITCH_LID)), r"4 valid lids dumped", *(rf"portguid {each.guid}" for each in ports))
        say(("ibtracert", str(ports[0].lid), str(ports[1].lid)), rf"From ca .*{ports[0].guid}", r"-> switch port",
            rf"To ca .*{ports[1].guid}")
        say(("saquery",), *(rf"port_guid\.+{each.guid}" for each in ports))
        say(("saquery", "-p", "--src-to-dst", f"{ports[0].lid}:{ports[2].lid}"), rf"dlid\.+{ports[2].lid}$")
        say(("saquery", "-x"), rf"FromLID\.+{ports[2].lid}$")
        say(("smpquery", "-G", "nodedesc", ports[2].guid), r"rxe_eth0")


@contextlib.contextmanager
def serving(port, program, probe, answer):
    """Runs the program as a server on the port's host, and waits until it answers `probe` there."""
    process = port.host.verbena("run", program, "-S")
    if not harness.poll_until(lambda: answer in port.host.run(program, *probe, str(port.lid))[1], 10):
        raise RuntimeError(f"{program} -S does not begin:\n{process.output}")
    yield process
    process.kill()


def judge_queries(judge, ports):
    """Datagrams to programs on another host and on the own host."""
    here, there, _ = ports
    with serving(there, "ibping", ("-c", "1", "-t", "200"), "1 received"):
        for port in (here, there):
            answered = (r"\b2 packets transmitted, 2 received",)
            where = "another host" if port is here else "the own host"
            judge.say(f"ibping, to {where}, by LID",
                      fault(port.host.run("ibping", "-c", "2", str(there.lid)), answered))
            judge.say(f"ibping, to {where}, by GUID",
                      fault(port.host.run("ibping", "-c", "2", "-G", there.guid), answered))
        second = there.host.run("ibping", "-S", seconds=10)
        judge.say("ibping: a second server of one port is refused", fault(second, (r"can't serve class",), 255))
    judge.say("ibping, to a host without a server",
              fault(here.host.run("ibping", "-c", "1", str(there.lid)), (r"1 packets transmitted, 0 received",)))
    judge.say("ibping, to a LID that nobody has",
              fault(here.host.run("ibping", "-c", "1", "-t", "50", str(NOBODYS_LID)), (r"1 packets transmitted, 0 received",)))
    with serving(there, "ibsysstat", ("-t", "200"), "succeeded"):
        judge.say("ibsysstat ping", fault(here.host.run("ibsysstat", str(there.lid)), (r"sysstat ping succeeded",)))
        judge.say("ibsysstat cpu", fault(here.host.run("ibsysstat", str(there.lid), "cpu"), (r"cpu 0:",)))


def judge_counters(judge, ports):
    """Counters that perfquery shows must grow with the traffic, on the host itself and from another host. Only the host's own
    programs may reset them."""
    here, there, _ = ports
    before = here.counters()
    result = harness.pair(there.host, here.host, ["ib_write_bw", "-F", "-n", "1000", "-s", "65536"])
    judge.say("ib_write_bw", None if result.good else result.report())
    words = 1000 * 65536 // 4

    def moved(counters):
        return counters is not None and counters[0] - before[0] >= words

    own = harness.poll_until(lambda: moved(here.counters()) and here.counters(), 5, step=0.2)
    judge.say("perfquery: sent data are counted", None if own else f"{before}, then {here.counters()}")
    afar = there.counters(str(here.lid), "1")
    judge.say("perfquery: another host sees the same", None if moved(afar) else f"{before}, then {afar}")
    here.host.run("perfquery", "-x", "-R", str(here.lid), "1")
    reset = here.counters()
    judge.say("perfquery -R: programs of the own host reset counters", None if reset and reset[0] < words else f"{reset}")
    refused = here.host.run("perfquery", "-x", "-R", str(there.lid), "1")
    judge.say("perfquery -R: programs of another host do not", fault(refused, (), 255))


def judge_silence(judge, hosts):
    """With --no-discovery, a host neither sees others nor is seen."""
    seen, silent = hosts.two()
    seen.start_agent()
    silent.start_agent("--no-discovery")
    for host, name in ((seen, "its neighbour"), (silent, "itself")):
        status, output = host.run("ibhosts")
        alone = status == 0 and len(re.findall(r"^Ca\s", output, re.MULTILINE)) == 1
        judge.say(f"--no-discovery: {name} sees one host", None if alone else output)


@contextlib.contextmanager
def speaker():
    """A copy of long_mads.py that an ordinary user can read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield ("python3", shutil.copy(pathlib.Path(__file__).with_name("long_mads.py"), folder))


@contextlib.contextmanager
def answering(host, program):
    """Runs long_mads.py as a server on the host."""
    server = host.verbena("run", *program, "serve")
    if not harness.poll_until(lambda: "serving" in server.output, 10):
        raise RuntimeError(f"long_mads.py does not serve:\n{server.output}")
    yield server
    server.kill()


def judge_long_messages(judge, ports, program):
    """Messages of several datagrams in both directions: each must be answered by one of the same length."""
    here, there, silent = ports
    sizes = (40, 256, 257, 10_000, 1_000_000, 4 << 20)
    good = [rf"^{size}: good" for size in sizes]
    with answering(there.host, program):
        for port in (here, there):
            where = "another host" if port is here else "the own host"
            asked = port.host.run(*program, "ask", str(there.lid), *map(str, sizes), seconds=60)
            judge.say(f"RMPP: messages of 40 bytes to 4 MiB, to {where} and back", fault(asked, good))
        nobody = (r"timeout 100: status 110, 24 bytes, agent 0, after 0.[3-9] s", r"timeout 0: status 110, 24 bytes")
        for lid, who in ((NOBODYS_LID, "a LID that nobody has"), (silent.lid, "a host that does not serve")):
            judge.say(f"RMPP: a message to {who} comes back", fault(here.host.run(*program, "ask-nobody", str(lid), "10000"), nobody))
    judge.say("RMPP: umad_send() refuses wrong requests", fault(here.host.run(*program, "faults"), (
        r"not active: EINVAL", r"without RMPP: EINVAL", r"a class without RMPP: EINVAL", r"too long: ENOMEM", r"too short: EINVAL")))
    judge.say("RMPP: a program that reassembles messages itself", fault(here.host.run(*program, "raw"), (r"segments .*: good",)))


def judge_agent_loss(judge, ports, program):
    """Programs on both hosts must survive the killing of their agents, which they replace by new ones."""
    here, there, _ = ports
    with answering(there.host, program) as server:
        asking = here.host.verbena("run", *program, "ask-on", str(there.lid))
        waiting = here.host.verbena("run", *program, "wait", str(NOBODYS_LID))
        harness.poll_until(lambda: "sent 0" in waiting.output and asking.output.count("good") > 1, 20)
        for port in (there, here):
            before = asking.output.count("good")
            for pid in port.host.agents():
                os.kill(pid, signal.SIGKILL)
            good = harness.poll_until(lambda n=before: asking.output.count("good") > n + 5, 30)
            alive = asking.running() and server.running()
            judge.say(f"an agent is killed at the {'server' if port is there else 'client'}: both continue",
                      None if good and alive else f"{asking.output}\n{server.output}")
        answered = "status 110, transaction 99, soon"
        harness.poll_until(lambda: answered in waiting.output, 10)
        judge.say("a pending request comes back", None if answered in waiting.output else waiting.output)
        asking.kill()


def switch_of(host):
    found = re.search(r"^switchguid=(0x[0-9a-f]+)", host.run("ibnetdiscover")[1], re.MULTILINE)
    return found.group(1) if found else None


# Networks of three hosts: description, and the addresses of each host.
NETWORKS = (
    ("a network of 10.9.0.0/22", (("10.9.0.1/22",), ("10.9.1.1/22",), ("10.9.3.1/22",))),
    ("a network of fd09::/64, and nothing else", (("fd09::1/64",), ("fd09::2/64",), ("fd09::a:b:c:d/64",))),
    ("link-local addresses only", ((), (), ())),
    ("several addresses, in other orders", (("10.9.0.1/24", "10.77.0.1/16"), ("10.77.0.2/16", "10.9.0.2/24"), ("10.77.0.3/16", "fd09::3/64"))),
)


def judge_networks(judge, hosts):
    """All hosts of a network must see the same switch."""
    machines = hosts.at_a_switch(3)
    for what, addresses in NETWORKS:
        for host, own in zip(machines, addresses):
            host.end_agents()
            harness.sh("ip", "-n", host.namespace, "addr", "flush", "dev", host.netdev, "scope", "global")
            for address in own:
                harness.sh("ip", "-n", host.namespace, "addr", "add", address, "dev", host.netdev,
                           *(["nodad"] if ":" in address else []))
        for host in machines:
            host.start_agent()
        switches = harness.poll_until(lambda: (seen := [switch_of(host) for host in machines]) and seen[0] and len(set(seen)) == 1 and seen, 10)
        seen = [len(re.findall(r"^Ca\s", host.run("ibhosts")[1], re.MULTILINE)) for host in machines]
        judge.say(f"one switch for all: {what}", None if switches and seen == [3, 3, 3] else f"{[switch_of(host) for host in machines]}, {seen} hosts")


def judge_acm(judge, host):
    """ib_acme must write its address file. Its service is for InfiniBand only and finds no such port."""
    if not shutil.which("ib_acme"):
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        result = host.run("sh", "-c", f"cd {folder} && ib_acme -A -O -D {folder} && cat {folder}/ibacm_addr.cfg")
        judge.say("ib_acme -A -O", fault(result, (rf"rxe_{host.netdev} 1 default$",)))


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ib_write_bw", *PROGRAMS)

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        machines = hosts.at_a_switch(3)
        for host in machines:
            host.start_agent()
        ports = [Port(host) for host in machines]
        judge_own_port(judge, ports[0])
        judge_fabric(judge, ports)
        judge_queries(judge, ports)
        judge_counters(judge, ports)
        judge_acm(judge, machines[0])
        judge_silence(judge, hosts)
        with speaker() as program:
            judge_long_messages(judge, ports, program)
            judge_agent_loss(judge, ports, program)
        judge_networks(judge, hosts)
    judge.exit()


if __name__ == "__main__":
    main()
