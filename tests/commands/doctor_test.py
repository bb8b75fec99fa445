#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doctor_test.py BUILD [TEST...]: `verbena doctor` finds each fault that the test causes, and reports none on a healthy host."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))
import harness  # noqa: E402

HOSTS = None
FINE, FINDINGS, COULD_NOT_LOOK = 0, 1, 2
ROOT = []


def doctor(host, *arguments, user=None, prefix=(), environment=None):
    """Runs `verbena doctor --json`: (exit status, problems by subject, output)."""
    command = [*prefix, host.hosts.build.program, "doctor", "--json", *arguments]
    status, output = host.finish(host.start(command, user=user, environment=environment), 60)
    try:
        findings = json.loads(output)["findings"]
    except ValueError:
        return status, {}, output
    amiss = {}
    for one in findings:
        if one["level"] in ("cost", "fault"):
            amiss.setdefault(one["subject"], []).append(one["what"] + " -> " + one["to_do"])
    return status, amiss, output


def inside(host, *command):
    harness.sh(*host.enter(), *command)


class Doctor(unittest.TestCase):
    def setUp(self):
        self.host, self.other = HOSTS.two()

    def assert_found(self, subject, *words, **options):
        status, amiss, output = doctor(self.host, *options.pop("arguments", ()), **options)
        self.assertEqual(status, FINDINGS, output)
        self.assertIn(subject, amiss, output)
        found = "\n".join(amiss[subject])
        for word in words:
            self.assertIn(word, found)
        return amiss

    def assert_fine(self, **options):
        status, amiss, output = doctor(self.host, **options)
        self.assertEqual((status, amiss), (FINE, {}), output)
        return output


class HealthyMachine(Doctor):
    def test_an_ordinary_user_has_no_finding(self):
        self.assertIn("only root may read", self.assert_fine())

    def test_root_has_none_either(self):
        self.assertIn("there are no rules", self.assert_fine(user=ROOT))

    def test_text_ends_with_a_conclusion(self):
        status, output = self.host.command("doctor")
        self.assertEqual(status, FINE)
        self.assertIn("Nothing is amiss.", output)

    def test_a_firewall_that_lets_the_port_in_is_fine(self):
        harness.require_programs("nft")
        inside(self.host, "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }; "
               "add rule inet filter input iif lo accept; add rule inet filter input udp dport 4791 accept")
        self.assert_fine(user=ROOT)

    def test_a_program_of_debians_is_fine(self):
        status, amiss, output = doctor(self.host, "ibv_devinfo")
        self.assertEqual((status, amiss), (FINE, {}), output)
        self.assertIn("libibverbs.so.1", output)


class Port(Doctor):
    def test_held_by_a_program(self):
        holder = self.host.start([sys.executable, "-c", "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                                  "s.bind(('', 4791))\nprint('bound', flush=True)\ntime.sleep(600)"], user=ROOT)
        self.assertTrue(harness.poll_until(lambda: "bound" in holder.output, 10))
        self.assert_found("port", f"python3 (pid {holder.pid}) of user 0", user=ROOT)

    def test_held_by_another_users_agent(self):
        self.assert_fine()  # this also starts the ordinary user's agent
        self.assert_found("port", f"the agent of user {harness.NOBODY}", "sudo verbena agent", user=ROOT)

    def test_not_for_ordinary_users(self):
        inside(self.host, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=5000")
        self.assert_found("port", "ip_unprivileged_port_start is 5000")


class Firewall(Doctor):
    def test_nftables_drop_the_port(self):
        harness.require_programs("nft")
        inside(self.host, "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; }; "
               "add rule inet filter input udp dport 4791 drop")
        self.assert_found("firewall", "table 'inet filter'", "drops IPv4 packets", "udp dport 4791 accept", user=ROOT)

    def test_only_answers_are_let_in(self):
        harness.require_programs("nft")
        inside(self.host, "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }; "
               "add rule inet filter input iif lo accept; add rule inet filter input ct state established,related accept")
        self.assert_found("firewall", "the policy of chain 'input'", user=ROOT)

    def test_iptables_drop_the_port(self):
        harness.require_programs("iptables", "iptables-save")
        inside(self.host, "iptables", "-A", "OUTPUT", "-p", "udp", "--dport", "4791", "-j", "DROP")
        self.assert_found("firewall", "that leave by eth0", user=ROOT)

    def test_iptables_rules_for_others(self):
        harness.require_programs("iptables-nft", "iptables-nft-save", "nft")
        for rule in ("-p udp -m multiport --dports 53,4790", "-m conntrack --ctstate INVALID"):
            inside(self.host, "iptables-nft", "-A", "INPUT", *rule.split(), "-j", "DROP")
        inside(self.host, "iptables-nft", "-A", "INPUT", "-p", "udp", "-m", "multiport", "--dports", "53,4791", "-j", "ACCEPT")
        inside(self.host, "iptables-nft", "-A", "INPUT", "-i", "lo", "-j", "ACCEPT")
        inside(self.host, "iptables-nft", "-P", "INPUT", "DROP")
        self.assert_fine(user=ROOT)

    def test_masquerading_takes_the_port_along(self):
        harness.require_programs("iptables", "iptables-save")
        for command in ("iptables", "ip6tables"):
            inside(self.host, command, "-t", "nat", "-A", "POSTROUTING", "!", "-o", "docker0", "-j", "MASQUERADE")
        amiss = self.assert_found("firewall", "'iptables -t nat -A POSTROUTING ! -o docker0 -j MASQUERADE' gives forwarded packets",
                                  "ip6tables -t raw -A PREROUTING", user=ROOT)
        self.assertEqual(len(amiss["firewall"]), 2, amiss)
        for command in ("iptables", "ip6tables"):
            for chain in ("PREROUTING", "OUTPUT"):
                inside(self.host, command, "-t", "raw", "-A", chain, "-p", "udp", "--dport", "4791", "-j", "CT", "--notrack")
        self.assertIn("drops or translates", self.assert_fine(user=ROOT))

    def test_source_translation_of_nftables_takes_the_port_along(self):
        harness.require_programs("nft")
        inside(self.host, "nft", "add table ip own; add chain ip own post { type nat hook postrouting priority srcnat; }; "
               "add rule ip own post ip saddr 172.17.0.0/16 oifname eth0 snat to 192.0.2.1")
        self.assert_found("firewall", "chain 'post' in table 'ip own'", "udp dport 4791 notrack", user=ROOT)
        inside(self.host, "nft", "add chain ip own pre { type filter hook prerouting priority raw; }; "
               "add rule ip own pre udp dport 4791 notrack")
        self.assert_fine(user=ROOT)

    def test_the_other_kind_of_iptables_drops_the_port(self):
        harness.require_programs("iptables-legacy", "iptables-legacy-save")
        inside(self.host, "iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", "4791", "-j", "DROP")
        self.assert_found("firewall", "--dport 4791 -j DROP' drops IPv4 packets", user=ROOT)


class Links(Doctor):
    def test_no_carrier(self):
        self.assert_fine()
        inside(self.other, "ip", "link", "set", "eth0", "down")
        harness.poll_until(lambda: "NO-CARRIER" in harness.sh("ip", "-n", self.host.namespace, "link", "show", "eth0"), 10)
        self.assert_found("links", "link rxe_eth0 is down", "no carrier")

    def test_no_device_is_up(self):
        for netdev in ("eth0", "lo"):
            inside(self.host, "ip", "link", "set", netdev, "down")
        self.assert_found("links", "there is no link", "eth0 (down)")

    def test_switched_off(self):
        self.assert_fine()
        inside(self.host, "ip", "link", "set", "eth0", "down")
        self.assertTrue(harness.poll_until(lambda: "eth0 is switched off" in self.host.command("status")[1], 10))
        self.assert_found("links", "link rxe_eth0 is down", "is switched off")

    def test_the_only_link_is_deleted(self):
        self.assert_fine()
        inside(self.host, "ip", "link", "set", "lo", "down")
        self.host.command("link", "del", "rxe_eth0")
        self.assert_found("links", "eth0 (its link was deleted)", "verbena link add rxe_eth0 eth0")
        self.assertIn("unless its link was deleted", self.host.command("link", "show")[1])

    def test_a_small_mtu(self):
        inside(self.host, "ip", "link", "set", "eth0", "mtu", "600")
        self.assert_found("mtu", "eth0 carries 600 bytes", "path MTU is 512")

    def test_a_narrow_route(self):
        inside(self.host, "ip", "route", "add", "10.77.0.0/16", "via", self.other.ipv4, "mtu", "900")
        amiss = self.assert_found("mtu", "the way to 10.77.0.0/16 carries 900 bytes", "perftest -m 512")
        self.assertEqual(len(amiss["mtu"]), 1, amiss)

    def test_ipv6_only(self):
        inside(self.host, "ip", "addr", "del", f"{self.host.ipv4}/24", "dev", "eth0")
        self.assert_found("links", "no link has an IPv4 address", "--ipv6-addr")

    def test_link_local_only(self):
        inside(self.host, "ip", "addr", "del", f"{self.host.ipv4}/24", "dev", "eth0")
        inside(self.host, "ip", "addr", "del", f"{self.host.ipv6}/64", "dev", "eth0")
        self.assert_found("links", "link-local address only")


class Peer(Doctor):
    def test_an_agent_there_says_its_version_and_what_fits(self):
        self.other.command("link", "show")  # starts an agent
        keeper = self.other.start([HOSTS.build.folder / "bin" / "verbena-agent", "--foreground"], user=ROOT)
        self.assertTrue(harness.poll_until(lambda: doctor(self.host, self.other.ipv4, user=ROOT)[0] == FINE, 20), keeper.output)
        status, amiss, output = doctor(self.host, self.other.ipv4, user=ROOT)
        self.assertEqual((status, amiss), (FINE, {}), output)
        self.assertIn("answers on UDP port 4791", output)
        self.assertIn("Verbena ", output)
        self.assertIn("a path MTU of 1024 fits", output)
        self.assertIn("answers on UDP port 4791", doctor(self.host, self.other.ipv6, user=ROOT)[2])
        inside(self.other, "ip", "link", "set", "eth0", "mtu", "700")
        self.assert_found("mtu", "a path MTU of 512 fits", arguments=[self.other.ipv4], user=ROOT)

    def test_nobody_listens(self):
        self.assert_found("peer", "nobody listens on UDP port 4791", arguments=[self.other.ipv4])

    def test_a_firewall_there(self):
        harness.require_programs("nft")
        self.other.start([HOSTS.build.folder / "bin" / "verbena-agent", "--foreground"], user=ROOT)
        inside(self.other, "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; }; "
               "add rule inet filter input udp dport 4791 drop")
        self.assert_found("peer", "let UDP port 4791 in at both ends", arguments=[self.other.ipv4], user=ROOT)

    def test_no_such_host(self):
        network = self.host.ipv4.rsplit(".", 1)[0]
        self.assert_found("peer", f"no host answers at {network}.250", arguments=[f"{network}.250"], user=ROOT)

    def test_no_route(self):
        self.assert_found("peer", "no way to 203.0.113.5", "ip route get", arguments=["203.0.113.5"])


class Agent(Doctor):
    def test_stopped(self):
        self.assert_fine()
        agent, = self.host.agents()
        os.kill(agent, signal.SIGSTOP)
        try:
            self.assert_found("agent", f"agent (pid {agent}) does not respond; it is stopped", f"kill -CONT {agent}")
        finally:
            os.kill(agent, signal.SIGCONT)

    def test_no_program_to_start(self):
        self.assert_found("agent", "cannot be started", environment={"VERBENA_AGENT": "/nowhere/verbena-agent"})

    def test_one_that_ends_at_once(self):
        self.assert_found("agent", "none can be started", environment={"VERBENA_AGENT": "/bin/false"})

    def test_a_directory_of_another_user(self):
        user = 61234
        folder = pathlib.Path(f"/tmp/verbena-{user}")
        folder.mkdir()
        self.addCleanup(folder.rmdir)
        os.chmod(folder, 0o777)
        self.assert_found("agent", f"{folder} belongs to user 0",
                          user=["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"])


class Limits(Doctor):
    def test_descriptors(self):
        self.assert_found("limits", "48 descriptors", prefix=["prlimit", "--nofile=48:4096"])

    def test_a_hard_limit_is_not_raised_by_the_shell(self):
        self.assert_found("limits", "the hard limit is 48", "LimitNOFILE", prefix=["prlimit", "--nofile=48:48"])

    def test_a_full_file_system_under_the_agents_directory(self):
        script = ('mount -t tmpfs -o size=64k tmpfs /run; head -c 1M /dev/zero >/run/ballast 2>/dev/null; exec "$@"')
        self.assert_found("limits", "the file system of /run", "0 KiB", user=ROOT,
                          prefix=["unshare", "--mount", "sh", "-c", script, "sh"])

    def test_a_setting_without_effect(self):
        self.assert_found("libraries", "VERBENA_SHARDS=99 has no effect", environment={"VERBENA_SHARDS": "99"})

    def test_address_space(self):
        self.assert_found("limits", "512 MiB of address space", prefix=["prlimit", f"--as={512 << 20}"])


class Kernel(Doctor):
    def test_processes_cannot_reach_memory(self):
        scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
        if not scope.exists():
            self.skipTest("this kernel has no Yama")
        before = scope.read_text(encoding="ascii")
        self.addCleanup(lambda: scope.write_text(before, encoding="ascii"))
        scope.write_text("1", encoding="ascii")
        self.assert_found("kernel", "ptrace_scope is 1", "--shared-memory")

    def test_a_sandbox_without_memory_files(self):
        self.assert_found("kernel", "memfd_create", "seccomp",
                          prefix=[HOSTS.build.folder / "tests" / "without_memory_files"])


class Libraries(Doctor):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-doctor-"))
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o755)

    def foreign_library(self):
        source = next(pathlib.Path("/usr/lib").glob("*-linux-gnu/libibverbs.so.1"))
        return shutil.copy(source.resolve(), self.folder / "libibverbs.so.1")

    def test_preloaded(self):
        library = self.foreign_library()
        self.assert_found("libraries", f"LD_PRELOAD names {library}", environment={"LD_PRELOAD": str(library)})

    def test_in_the_library_path(self):
        self.foreign_library()
        self.assert_found("libraries", f"LD_LIBRARY_PATH leads to {self.folder}", environment={"LD_LIBRARY_PATH": str(self.folder)})

    def compiled(self, *options):
        program = self.folder / "program"
        source = self.folder / "program.c"
        source.write_text("int ibv_fork_init(void);\nint main(int n, char** v) { return n > 5 ? ibv_fork_init() : 0; }\n",
                          encoding="ascii")
        harness.sh("cc", "-o", program, source, *options)
        return program

    def test_a_program_with_an_rpath(self):
        self.foreign_library()
        program = self.compiled("-libverbs", f"-Wl,-rpath,{self.folder},--disable-new-dtags")
        self.assert_found("program", "its RPATH", str(self.folder), arguments=[program])

    def test_a_program_with_a_runpath_is_fine(self):
        self.foreign_library()
        program = self.compiled("-libverbs", f"-Wl,-rpath,{self.folder},--enable-new-dtags")
        self.assertEqual(doctor(self.host, program)[0], FINE)

    def test_a_static_program(self):
        source = self.folder / "static.c"
        source.write_text("int main(void) { return 0; }\n", encoding="ascii")
        harness.sh("cc", "-static", "-o", self.folder / "static", source)
        self.assert_found("program", "linked statically", arguments=[self.folder / "static"])

    def test_a_shared_library(self):
        source = self.folder / "library.c"
        source.write_text("int ibv_fork_init(void);\nint call(void) { return ibv_fork_init(); }\n", encoding="ascii")
        library = self.folder / "libcaller.so"
        harness.sh("cc", "-shared", "-fPIC", "-o", library, source, "-libverbs")
        status, amiss, output = doctor(self.host, library)
        self.assertEqual((status, amiss), (FINE, {}), output)
        self.assertIn("libibverbs.so.1", output)

    def test_a_static_program_at_any_address_is_no_library(self):
        source = self.folder / "static.c"
        source.write_text("int main(void) { return 0; }\n", encoding="ascii")
        harness.sh("cc", "-static-pie", "-o", self.folder / "static", source)
        self.assert_found("program", "linked statically", arguments=[self.folder / "static"])

    def test_a_privileged_program(self):
        program = self.compiled("-libverbs")
        os.chmod(program, 0o4755)
        self.assert_found("program", "set-user-ID", arguments=[program],
                          user=["setpriv", f"--reuid={harness.NOBODY}", f"--regid={harness.NOBODY}", "--clear-groups"])

    def test_a_program_that_gives_nobody_a_privilege(self):
        program = self.compiled("-libverbs")
        os.chmod(program, 0o4755)
        for user in (ROOT, None):  # as root, and as a user whose programs cannot gain privileges (no_new_privs)
            status, amiss, output = doctor(self.host, program, user=user)
            self.assertEqual((status, amiss), (FINE, {}), output)

    def test_a_program_that_lacks_a_library(self):
        stub = self.folder / "stub.c"
        stub.write_text("int missing(void) { return 0; }\n", encoding="ascii")
        library = self.folder / "libmissing_at_run_time.so"
        harness.sh("cc", "-shared", f"-Wl,-soname,{library.name}", "-o", library, stub)
        program = self.compiled("-libverbs", "-Wl,--no-as-needed", library)
        library.unlink()
        self.assert_found("program", "libmissing_at_run_time.so", "not found", arguments=[program])

    def test_a_program_of_another_abi(self):
        source, versions = self.folder / "later.c", self.folder / "later.map"
        source.write_text("int ibv_fork_init(void) { return 0; }\n", encoding="ascii")
        versions.write_text("IBVERBS_9.9 { ibv_fork_init; };\n", encoding="ascii")
        later = self.folder / "libibverbs.so.1"
        harness.sh("cc", "-shared", f"-Wl,-soname,libibverbs.so.1,--version-script,{versions}", "-o", later, source)
        program = self.compiled(later)
        later.unlink()
        self.assert_found("program", "built for another libibverbs", "IBVERBS_9.9", arguments=[program])

    def test_nothing_of_a_program_with_an_audit_library_runs(self):
        source, library, ran = self.folder / "audit.c", self.folder / "audit.so", self.folder / "ran"
        source.write_text("#include <fcntl.h>\n#include <unistd.h>\n"
                          f"unsigned la_version(unsigned version) {{ close(creat(\"{ran}\", 0600)); return version; }}\n", encoding="ascii")
        harness.sh("cc", "-shared", "-fPIC", "-o", library, source)
        for option in ("--audit", "--depaudit"):
            with self.subTest(option):
                program = self.compiled("-libverbs", f"-Wl,{option}={library}")
                harness.sh(program)
                self.assertTrue(ran.exists(), "the loader calls it when the program runs")
                ran.unlink()
                status, amiss, output = doctor(self.host, program, user=ROOT)  # root may write there
                self.assertEqual((status, amiss), (FINE, {}), output)
                self.assertFalse(ran.exists())

    def test_libraries_are_found_beside_a_program_that_a_link_leads_to(self):
        source, places = self.folder / "stub.c", [self.folder / "outer", self.folder / "inner"]
        source.write_text("int stub(void) { return 0; }\n", encoding="ascii")
        for place in places:
            place.mkdir()
        inner, outer = places[1] / "libinner.so", places[0] / "libouter.so"
        harness.sh("cc", "-shared", "-fPIC", "-Wl,-soname,libinner.so", "-o", inner, source)
        harness.sh("cc", "-shared", "-fPIC", "-Wl,-soname,libouter.so,--no-as-needed,-rpath,$ORIGIN/../inner,--enable-new-dtags", "-o", outer, source, inner)
        program = self.compiled("-libverbs", "-Wl,--no-as-needed,-rpath,${ORIGIN}/outer,--enable-new-dtags", outer)
        link = self.folder / "elsewhere" / "link"
        link.parent.mkdir()
        link.symlink_to(program)
        status, amiss, output = doctor(self.host, link)
        self.assertEqual((status, amiss), (FINE, {}), output)
        inner.unlink()
        self.assert_found("program", "libinner.so", "not found", arguments=[link])

    def test_a_script_is_seen_through(self):
        script = self.folder / "script"
        script.write_text("#!/usr/bin/env python3\n", encoding="ascii")
        os.chmod(script, 0o755)
        status, amiss, output = doctor(self.host, script)
        self.assertEqual((status, amiss), (FINE, {}), output)
        self.assertIn("is a script for python3", output)

    def test_what_is_no_program(self):
        self.assertEqual(doctor(self.host, "no-such-program")[0], COULD_NOT_LOOK)
        text = self.folder / "text"
        text.write_text("words\n", encoding="ascii")
        self.assertEqual(doctor(self.host, text)[0], COULD_NOT_LOOK)


def main():
    global HOSTS
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    harness.require_root()
    harness.require_programs("ip", "cc", "ibv_devinfo", "prlimit")
    with harness.Hosts(sys.argv.pop(1)) as HOSTS:
        unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
