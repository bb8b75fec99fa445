#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""package_test.py SUITE [TEST...]: tests the Debian packages of this checkout in a fresh root of this suite: installed,
upgraded while programs run, and removed without a trace.

The root is made once, in $XDG_CACHE_HOME/verbena/roots, and never changed: each test uses a copy-on-write view of it, with its
own processes, network and mounts. VERBENA_ROOTS names another folder."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SUITE = BASE = PACKAGES = None
SKIPPED = 77
OLD, NEW = "0.1.0-1", "0.1.0-2"
USER = 61001
# Files that dpkg and the loader write for any package, installed or not.
BOOKKEEPING = re.compile(r"/(var/lib/dpkg|var/log|var/cache|var/backups|proc|sys|dev|tmp|run/lock)(/|$)|/etc/ld\.so\.cache$")


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def poll_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


class Logged(subprocess.Popen):
    """A program whose output goes to a file."""

    def __init__(self, command):
        self._file = tempfile.TemporaryFile()
        super().__init__(command, stdout=self._file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def said(self):
        return os.pread(self._file.fileno(), 1 << 20, 0).decode(errors="replace")

    def end(self):
        self.kill()
        self.wait()
        self._file.close()


class Root:
    """A fresh system. A shell inside reads command lines and answers; when the shell ends, everything in the system ends."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-root-"))
        script = f"""
            set -e
            mount -t tmpfs tmpfs {self.folder}
            mkdir {self.folder}/upper {self.folder}/work {self.folder}/root
            mount -t overlay overlay -o lowerdir={BASE},upperdir={self.folder}/upper,workdir={self.folder}/work {self.folder}/root
            cd {self.folder}/root
            mount -t proc proc proc
            mount -t tmpfs tmpfs run
            mount -t tmpfs -o mode=1777 tmpfs tmp
            mount --rbind /dev dev
            mount -t tmpfs -o mode=1777 tmpfs dev/shm
            mkdir packages
            mount --bind {PACKAGES} packages
            ip link set lo up
            exec chroot . /bin/sh -c 'echo ready; sleep 100000'
        """
        self.init = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "sh", "-c", script],
                                     stdout=subprocess.PIPE, text=True)
        if self.init.stdout.readline() != "ready\n":
            raise RuntimeError("the root cannot be entered")
        self.pid = int(pathlib.Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text(encoding="ascii").split()[0])

    def close(self):
        self.init.kill()
        self.init.wait()
        self.init.stdout.close()
        self.folder.rmdir()

    def command(self, *words, user=None):
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i", "-r", "-w"]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"] if user else []
        environment = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]
        return [*enter, *environment, *as_user, *map(str, words)]

    def start(self, *words, user=None):
        return Logged(self.command(*words, user=user))

    def run(self, *words, user=None):
        """Runs a command: (exit status, output)."""
        ran = subprocess.run(self.command(*words, user=user), capture_output=True, text=True, timeout=120, check=False,
                             stdin=subprocess.DEVNULL)
        return ran.returncode, ran.stdout + ran.stderr

    def do(self, *words, user=None):
        status, output = self.run(*words, user=user)
        if status:
            raise RuntimeError(f"{' '.join(map(str, words))}: {status}\n{output}")
        return output

    def install(self, version, *names):
        for name in names or ("verbena",):
            package, = PACKAGES.glob(f"{name}_{version}_*.deb")
            self.do("dpkg", "-i", f"/packages/{package.name}")

    def files(self):
        listed = self.do("find", "/", "-xdev", "-printf", "%p %y %m %U %s %l\n").splitlines()
        run = self.do("find", "/run", "/tmp", "-xdev", "-mindepth", "1", "-printf", "%p %y\n").splitlines()
        # The size of a folder depends on the file system.
        return {re.sub(r" (d \d+ \d+) \d+", r" \1", line) for line in listed + run if not BOOKKEEPING.search(line.split()[0])}

    def agents(self):
        """{name: pids} of the agents and standbys in the root."""
        found = {}
        for line in self.do("ps", "-eo", "pid,comm", "--no-headers").splitlines():
            pid, name = line.split(None, 1)
            if name.startswith("verbena-"):
                found.setdefault(name, []).append(int(pid))
        return found


class Package(unittest.TestCase):
    def setUp(self):
        self.root = Root()
        self.addCleanup(self.root.close)

    def start_logged(self, *words, user=None):
        process = self.root.start(*words, user=user)
        self.addCleanup(process.end)
        return process

    def start_pair(self, user):
        """Starts ib_write_bw, server and client, for some seconds; returns when both run."""
        options = ["-D", "10", "-F", "-p", "19001"]
        server = self.start_logged("verbena", "run", "ib_write_bw", *options, user=user)
        self.assertTrue(poll_until(lambda: ":4A39 " in self.root.do("cat", "/proc/net/tcp", "/proc/net/tcp6"), 20), server.said())
        client = self.start_logged("verbena", "run", "ib_write_bw", *options, "127.0.0.1", user=user)

        def connected():
            processes = json.loads(self.root.do("verbena", "status", "--json"))["processes"]
            return sum(qp["state"] in ("RTR", "RTS") for one in processes for qp in one["queue_pairs"]) >= 2
        self.assertTrue(poll_until(connected, 20), server.said() + client.said())
        return server, client

    def test_a_fresh_installation_runs_programs(self):
        self.root.install(OLD)
        self.assertIn("rxe_lo", self.root.do("verbena", "run", "ibv_devices", user=USER))
        self.assertIn("PORT_ACTIVE", self.root.do("verbena", "run", "ibv_devinfo", user=USER))
        self.assertEqual(self.root.run("verbena", "doctor", user=USER)[0], 0, self.root.run("verbena", "doctor", user=USER)[1])

    def test_our_own_of_rdma_cores_programs_run_and_shadow_none(self):
        self.root.install(OLD)
        self.assertIn("rxe_lo", self.root.do("verbena", "ibv_devinfo", "--json", user=USER))
        found = self.root.do("verbena", "run", "sh", "-c", "command -v ibv_devinfo", user=USER)
        self.assertEqual(found, "/usr/bin/ibv_devinfo\n")

    def test_it_depends_on_little_and_on_what_is_there(self):
        self.root.install(OLD)
        depends = self.root.do("dpkg-query", "-W", "-f", "${Depends}", "verbena")
        names = {word.split()[0] for word in depends.split(", ")}
        self.assertIn("libc6", names)
        self.assertLessEqual(names, {"libc6", "libgcc-s1", "libmnl0", "libncurses6", "libstdc++6", "libtinfo6"})
        self.assertEqual(self.root.do("dpkg", "--audit"), "")

    def test_the_package_for_development(self):
        self.root.install(OLD, "verbena", "libverbena-dev")
        listed = self.root.do("dpkg", "-L", "libverbena-dev")
        self.assertIn("/pkgconfig/verbena.pc", listed)
        self.assertNotIn("/bin/", listed)

    def upgrade_under(self, user):
        self.root.install(OLD)
        if user:
            self.start_logged("verbena", "agent")  # root's agent, which serves every user
            self.assertTrue(poll_until(lambda: self.root.agents().get("verbena-agent"), 10))
        server, client = self.start_pair(user)
        before = self.root.agents()
        self.root.install(NEW)
        self.assertIn(NEW, self.root.do("dpkg-query", "-W", "verbena"))

        def succeeded():
            now = self.root.agents().get("verbena-agent", [])
            return now and not set(now) & set(before["verbena-agent"])
        self.assertTrue(poll_until(succeeded, 10), f"{before}, then {self.root.agents()}")
        for pid in self.root.agents()["verbena-agent"]:
            self.assertEqual(self.root.do("readlink", f"/proc/{pid}/exe"), "/usr/bin/verbena-agent\n")
        slots = self.root.do("verbena", "status")
        self.assertIn("ib_write_bw", slots)
        self.assertEqual(server.poll(), None, "it ended under the upgrade")
        for process in (client, server):
            self.assertEqual(process.wait(60), 0, process.said())

    def test_an_upgrade_goes_unnoticed_by_programs(self):
        self.upgrade_under(None)

    def test_an_upgrade_goes_unnoticed_by_another_users_programs(self):
        self.upgrade_under(USER)

    def test_the_whole_system_on_and_off(self):
        self.root.install(OLD)
        without = self.root.run("ibv_devices")[1]
        self.assertNotIn("rxe_lo", without)
        self.assertEqual(self.root.run("verbena", "system", "status")[0], 1)
        self.assertEqual(self.root.run("verbena", "system", "on", user=USER)[0], 1)
        self.root.do("verbena", "system", "on")
        self.assertEqual(self.root.run("verbena", "system", "status")[0], 0)
        self.assertIn("rxe_lo", self.root.do("ibv_devices", user=USER))
        self.root.do("verbena", "system", "off")
        self.assertNotIn("rxe_lo", self.root.run("ibv_devices", user=USER)[1])

    def test_manuals_and_completion_are_where_they_are_looked_for(self):
        self.root.install(OLD)
        listed = self.root.do("dpkg", "-L", "verbena").split()
        for file in ("man/man1/verbena-doctor.1", "man/man7/verbena.7", "bash-completion/completions/verbena", "zsh/vendor-completions/_verbena"):
            self.assertIn(f"/usr/share/{file}", listed)

    def test_removal_leaves_nothing(self):
        before = self.root.files()
        self.root.install(OLD)
        self.root.do("verbena", "run", "ibv_devices", user=USER)
        self.root.do("verbena", "run", "ibv_devices")
        self.root.do("verbena", "system", "on")
        self.root.do("ibv_devices", user=USER)
        self.root.do("dpkg", "-r", "verbena")
        self.assertTrue(poll_until(lambda: not self.root.agents(), 10), self.root.agents())
        self.root.do("dpkg", "-P", "verbena")
        self.assertNotIn("verbena", self.root.do("ldconfig", "-p"))
        after = self.root.files()
        self.assertEqual(sorted(before ^ after), [])


class Rootless(unittest.TestCase):
    """The steps of docs/containers.md: an ordinary user, a root folder and the unpacked package, without a container engine."""

    def test_programs_run_in_a_container_of_an_ordinary_user(self):
        with tempfile.TemporaryDirectory(prefix="verbena-unpacked-") as folder:
            os.chmod(folder, 0o755)
            unpacked, debian = pathlib.Path(folder, "verbena"), pathlib.Path(folder, "debian")
            debian.mkdir()
            package, = PACKAGES.glob(f"verbena_{OLD}_*.deb")
            subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
            recipe = (TOP / "docs" / "containers.md").read_text(encoding="utf-8")
            recipe = re.search(r"(?s)    (unshare --user.*?)\n\n", recipe).group(1)
            recipe = recipe.replace("/srv/verbena", str(unpacked)).replace("/srv/debian", str(debian))
            # The root may be in a folder that the user cannot access.
            as_user = f"mount --bind {BASE} {debian} && exec setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs sh -e -c \"$1\""
            ran = subprocess.run(["unshare", "--mount", "sh", "-c", as_user, "sh", recipe],
                                 capture_output=True, text=True, timeout=60, check=False)
            if "unshare failed" in ran.stderr:
                self.skipTest("ordinary users may have no namespaces here")
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertIn("PORT_ACTIVE", ran.stdout)


def prepare():
    """Makes the root if it is missing, and builds both versions of the packages."""
    if os.geteuid() != 0:
        skip("making a root folder needs root")
    missing = [name for name in ("debootstrap", "dpkg-shlibdeps", "unshare", "nsenter") if not shutil.which(name)]
    if missing:
        skip(f"not installed: {' '.join(missing)} (scripts/setup package vm)")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    roots = pathlib.Path(os.environ.get("VERBENA_ROOTS") or cache / "verbena" / "roots")
    made = subprocess.run([TOP / "tests" / "packaging" / "make-root", SUITE, roots], capture_output=True, text=True, check=False)
    if made.returncode:
        skip(f"no root of {SUITE} could be made in {roots}: {made.stderr.strip()}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-packages-"))
    os.chmod(folder, 0o755)
    for version in (OLD, NEW):
        subprocess.run([TOP / "scripts" / "package", "--version", version, folder], check=True, stdout=subprocess.DEVNULL)
    return roots / SUITE, folder


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    SUITE = sys.argv.pop(1)
    BASE, PACKAGES = prepare()
    try:
        unittest.main()
    finally:
        shutil.rmtree(PACKAGES)
