# SPDX-License-Identifier: Apache-2.0
"""Containers on a host of harness.py, created from namespaces by the test itself or by podman, with or without files of their
own.

    one, other = Container(host, ["pid", "mount"]), Container(host)
    one.run("ibv_devinfo")
"""

import contextlib
import os
import shutil
import subprocess

import harness
from run_users import as_user

USER = 65533
OPTIONS = {"pid": ["--pid", "--fork", "--kill-child"], "mount": ["--mount"], "ipc": ["--ipc"], "user": ["--user", "--map-root-user"],
           "unmapped": ["--user"], "users": ["--user"]}
ENTER = {"pid": "--pid", "mount": "--mount", "ipc": "--ipc", "user": "--user", "unmapped": "--user", "users": "--user"}

# Not crun: Debian 12's does not run with control groups of both versions mounted.
PODMAN = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]

# A new mount namespace gets its own /run, where agents have their directories, and its own /dev/shm; with a pid namespace also
# /proc.
PREPARE = """
set -e
if [ "$2" = own_files ]; then
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir -p /run/user/{0}
  chown {0}:{0} /run/user/{0} 2>/dev/null || true
  chmod 700 /run/user/{0}
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
fi
[ "$1" = own_processes ] && mount -t proc proc /proc
echo ready
exec sleep infinity
"""


def agents_of(host):
    """The pids of the agents, without mirrors and standbys, which are processes of the same program."""
    return [pid for pid in host.agents() if harness.name_of(pid) == "verbena-agent"]


class Container(harness.Host):
    """A host as seen by programs in a container. The programs run as one user, who is root inside if the container has a user
    namespace with a map. `private`: names of the container's own namespaces (keys of OPTIONS). The network is always shared.
    Without `own_files`, so is /run."""

    def __init__(self, host, private=(), uid=USER, own_files=True):  # pylint: disable=super-init-not-called
        self.__dict__.update(host.__dict__)
        self.private = tuple(private)
        self.uid = uid
        # Only the owner of the pid namespace can mount /proc, and only in its own mount namespace.
        flags = ["own_processes" if "pid" in private else "", "own_files" if own_files else ""]
        # Without a map nothing can be mounted.
        script = PREPARE.format(0 if "user" in private else uid) if "mount" in private else "echo ready; exec sleep infinity"
        unshare = ["unshare", *[word for name in private for word in OPTIONS[name]]] if private else []
        self._pause = host.start(unshare + ["sh", "-c", script, "sh", *flags], user=self._owner())
        if not harness.poll_until(lambda: "ready" in self._pause.output or not self._pause.running(), 10) or not self._pause.running():
            raise RuntimeError(f"no container with its own {private}: {self._pause.output}")
        if "users" in private:
            self._map_users()

    def _map_users(self):
        """Maps IDs like systemd's PrivateUsers: root and the user keep their numbers; all others are unmapped."""
        for file in ("uid_map", "gid_map"):
            with open(f"/proc/{self._inside()}/{file}", "w", encoding="ascii") as numbers:
                numbers.write(f"0 0 1\n{self.uid} {self.uid} 1\n")

    def _owner(self):
        """Command prefix for the user who creates and enters the namespaces: root, except for user namespaces."""
        return as_user(self.uid) if {"user", "unmapped"}.intersection(self.private) else []

    def _inside(self):
        """The pid of the container's first process: unshare itself, or its child if it has forked."""
        if "pid" not in self.private:
            return self._pause.pid
        with open(f"/proc/{self._pause.pid}/task/{self._pause.pid}/children", encoding="ascii") as children:
            return int(children.read().split()[0])

    def start(self, command, user=None, environment=None):
        prefix = self._owner()
        if self.private:
            options = [ENTER[name] for name in self.private]
            # Keep the user's credentials, whether or not the user namespace maps them.
            prefix = prefix + ["nsenter", "-t", str(self._inside()), *options, *(["--preserve-credentials"] if prefix else [])]
        if user is None and not self._owner():
            prefix = prefix + as_user(self.uid)
        return harness.Host.start(self, command, prefix, environment)

    def processes(self):
        """The pids of the container's processes, as seen from outside."""
        found = []
        for pid in harness.sh("ip", "netns", "pids", self.namespace, check=False).split():
            with contextlib.suppress(OSError):
                if all(os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/{self._inside()}/ns/{name}")
                       for name in ("pid", "mnt")):
                    found.append(int(pid))
        return found

    def end(self):
        self._pause.kill()


class Podman(harness.Host):
    """Like Container, made by podman: it shares the host's network, and has this machine's files in a file system of its own."""

    def __init__(self, host, uid=USER, options=()):  # pylint: disable=super-init-not-called
        self.__dict__.update(host.__dict__)
        self.uid = uid
        self.name = f"verbena-{os.getpid()}-{Podman.made}"
        Podman.made += 1
        build = str(host.hosts.build.program.parent.parent)
        # An ordinary user may lack the limits on processes and files that podman requests.
        started = harness.Process([
            *PODMAN, "run", "--detach", "--rm", "--name", self.name, "--network", f"ns:/run/netns/{host.namespace}",
            "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--volume", f"{build}:{build}:ro", *options,
            "--rootfs", "/:O", "sleep", "infinity"])
        if harness.Host.finish(started, 60)[0] != 0:
            raise RuntimeError(f"podman: {started.output}")
        self._first = harness.sh(*PODMAN, "inspect", "--format", "{{.State.Pid}}", self.name).strip()

    made = 0

    def start(self, command, user=None, environment=None):
        given = [word for name, value in {**self.hosts.environment, **self.environment, **(environment or {})}.items()
                 if value is not None for word in ("--env", f"{name}={value}")]
        process = harness.Process([*PODMAN, "exec", "--user", f"{self.uid}:{self.uid}", *given, self.name, *command])
        process.network_of = self._first
        self.hosts.processes.append(process)
        return process

    def end(self):
        harness.sh(*PODMAN, "rm", "--force", "--time", "0", self.name, check=False)


def has_podman():
    """Whether podman can start containers here, which takes more than installing it."""
    if not shutil.which("podman") or not shutil.which("runc"):
        return False
    tried = subprocess.run([*PODMAN, "run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096",
                            "--rootfs", "/:O", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return tried.returncode == 0
