# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel with rdma_rxe in a virtual machine, on a bridge in a network namespace of ours.

The machine is made and booted by the `vm` script of a folder that VERBENA_KERNEL_VM names, or that lies beside the
checkout as ../shared/kernel-vm; its README says how the image is built.
"""

import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "conformance"))
import harness  # noqa: E402

BRIDGE = "rxebr0"
IPV4, IPV6 = "10.77.0.11", "fd77::b"     # the machine's addresses
OUR_IPV4, OUR_IPV6 = "10.77.0.1", "fd77::1"  # the bridge's


def folder():
    """Where the `vm` script is; skips the test where there is none, or no image."""
    tools = pathlib.Path(os.environ.get("VERBENA_KERNEL_VM", TOP.parent / "shared" / "kernel-vm"))
    if not (tools / "vm").exists():
        harness.skip(f"no kernel to talk to: {tools} has no 'vm'; VERBENA_KERNEL_VM may name another folder")
    image = pathlib.Path(os.environ.get("KVM_DIR", pathlib.Path.home() / ".cache" / "kernel-vm"))
    if not (image / "root.img").exists():
        harness.skip(f"no kernel image in {image}; '{tools / 'make-image'}' builds it in about a minute")
    harness.require_programs("qemu-system-x86_64")
    return tools


class KernelVm:
    """The machine, up between enter and exit, with a link rxe0 over its eth0."""

    def __init__(self, hosts, mtu=1500):
        self._vm = folder() / "vm"
        self.name = f"verbena{os.getpid()}"
        self.namespace = hosts._namespace("v")  # pylint: disable=protected-access
        self._environment = {**os.environ, "RXE_NETNS": self.namespace, "RXE_MTU": str(mtu)}
        self.gids = {}
        # Our end: the bridge, seen from the namespace that holds it.
        self.our_host = harness.Host(hosts, self.namespace, OUR_IPV4, OUR_IPV6, BRIDGE)
        self._mtu = mtu

    def _run(self, *words, seconds=120):
        return subprocess.run([str(self._vm), *words], env=self._environment, capture_output=True, text=True,
                              timeout=seconds, check=False, stdin=subprocess.DEVNULL)

    def __enter__(self):
        started = self._run("start", self.name, "1")
        if started.returncode:
            raise RuntimeError(f"the virtual machine does not start: {started.stdout}{started.stderr}")
        harness.sh("ip", "-n", self.namespace, "link", "set", BRIDGE, "mtu", self._mtu)
        status, output = self.run("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 && "
                                  "for g in /sys/class/infiniband/rxe0/ports/1/gids/*; do "
                                  "echo ${g##*/} $(cat $g); done | grep -v 0000:0000:0000:0000:0000:0000:0000:0000", 300)
        if status:
            raise RuntimeError(f"no rdma_rxe in the virtual machine: exit status {status}\n{output}")
        gids = {gid: int(index) for index, gid in (line.split() for line in output.splitlines())}
        self.gids = {"ipv4": gids["0000:0000:0000:0000:0000:ffff:0a4d:000b"],
                     "ipv6": gids["fd77:0000:0000:0000:0000:0000:0000:000b"]}
        return self

    def __exit__(self, *_):
        self._run("stop", self.name)

    def run(self, command, seconds=60):
        """Runs a shell command in the machine: (exit status, output)."""
        ran = self._run("exec", self.name, f"timeout {seconds} bash -c '{command}'", seconds=seconds + 30)
        return ran.returncode, ran.stdout

    def start(self, hosts, *words, seconds=60):
        """Starts a program in the machine; the returned process ends with it and has its output and exit status."""
        process = harness.Process([self._vm, "exec", self.name, f"timeout {seconds} {' '.join(map(str, words))}"],
                                  self._environment)
        hosts.processes.append(process)
        return process

    def wait_for_listener(self, port, seconds=20):
        """Whether something in the machine listens on a TCP port, as soon as it does."""
        status, _ = self.run(f"for i in $(seq {seconds * 20}); do "
                             f"grep -qi :{port:04x}\\ .*\\ 0A /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.05; done; "
                             "exit 1", seconds + 5)
        return status == 0
