#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel with rdma_rxe in a virtual machine, joined by a cable to one of our network namespaces.

    with harness.Hosts(build) as hosts, kernel_vm.KernelVm(hosts) as machine:
        status, output = machine.run("rdma link show")

    kernel_vm.py --build build/release 'rdma link show'     boots a machine, runs the command, and powers the machine off

vm/make-image makes the image to boot, once, in $XDG_CACHE_HOME/verbena/kernel-vm; VERBENA_KERNEL_VM names another folder.
"""

import argparse
import itertools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "conformance"))
import harness  # noqa: E402

NETDEV = "tap0"  # our end of the cable
IPV4, IPV6 = "10.77.0.11", "fd77::b"         # the machine's addresses
OUR_IPV4, OUR_IPV6 = "10.77.0.1", "fd77::1"  # our addresses
TOOLS = ("qemu-system-x86_64", "debootstrap", "busybox", "cpio", "depmod", "mke2fs", "xz", "zstd")
BOOT_SECONDS = 300
# TCG emulation works on every host. In a virtual machine that claims to have KVM, guests do not always boot with it.
QEMU = ("qemu-system-x86_64", "-machine", "q35,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-snapshot")
KERNEL_OPTIONS = ("console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 tsc=reliable no_timer_check "
                  "rcupdate.rcu_expedited=1 pci=lastbus=0 random.trust_cpu=on")


def image():
    """The folder with the image. Makes the image if it is missing; skips the test if that fails."""
    harness.require_root()
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        harness.skip(f"no virtual machine can be started: {' '.join(missing)} not installed (scripts/setup vm)")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("VERBENA_KERNEL_VM") or cache / "verbena" / "kernel-vm")
    made = subprocess.run([TOP / "tests" / "interop" / "vm" / "make-image", folder], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if made.returncode:
        harness.skip(f"no kernel image could be made in {folder}:\n{made.stdout}{made.stderr}")
    return folder


class Job:
    """A program in the machine, with the interface of harness.Process."""

    def __init__(self, machine, command):
        self._machine = machine
        self.command = ["kernel:", command]
        self._path = machine.begin(command)
        self.began = harness.time.monotonic()

    def _file(self, suffix):
        path = self._path.with_suffix(suffix)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def output(self):
        return self._file(".out")

    def running(self):
        return not self._path.with_suffix(".status").exists() and self._machine.is_up()

    def wait(self, seconds):
        """Returns the exit status, or None if the program still runs after `seconds`."""
        if not harness.poll_until(lambda: not self.running(), seconds, 0.005):
            return None
        status = self._file(".status")
        return int(status) if status else -1

    def kill(self):
        """Ends the program and everything it started."""
        if self.running():
            self._machine.run(f"pkill -KILL -s $(cat {self._machine.within(self._path.with_suffix('.pid'))})")


class KernelVm:
    """The machine, running between enter and exit, with a link rxe0 over its eth0."""

    def __init__(self, hosts, mtu=1500, processors=2, megabytes=1536):
        self._image = image()
        self._mtu = mtu
        self._size = ("-smp", str(processors), "-m", str(megabytes))
        self._shared = tempfile.TemporaryDirectory(prefix="verbena-kernel-vm-")
        self.shared = pathlib.Path(self._shared.name)  # mounted in the machine as /host
        self._jobs = self.shared / "jobs"
        self._numbers = itertools.count(1)
        self._qemu = None
        self._bell = None
        self.gids = {}
        namespace = hosts._namespace("v")  # pylint: disable=protected-access
        self.our_host = harness.Host(hosts, namespace, OUR_IPV4, OUR_IPV6, NETDEV)

    def __enter__(self):
        try:
            self._lay_cable()
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._bell:
            os.close(self._bell)
        if self._qemu:
            self._qemu.kill()  # its disk is a snapshot, so nothing is lost
            self._qemu.wait()
        self._shared.cleanup()

    def _lay_cable(self):
        at = ("ip", "-n", self.our_host.namespace)
        harness.sh(*at, "tuntap", "add", "dev", NETDEV, "mode", "tap")
        harness.sh(*at, "addr", "add", f"{OUR_IPV4}/24", "dev", NETDEV)
        harness.sh(*at, "addr", "add", f"{OUR_IPV6}/64", "dev", NETDEV, "nodad")
        harness.sh(*at, "link", "set", NETDEV, "mtu", self._mtu, "up")

    def _boot(self):
        self._jobs.mkdir()
        for way in ("in", "out"):
            os.mkfifo(self._jobs / f"bell.{way}")
        console = self._jobs / "console"
        told = f"guest.name=jobs guest.mtu={self._mtu} guest.ipv4={IPV4}/24 guest.ipv6={IPV6}/64"
        with open(self._jobs / "qemu", "w", encoding="utf-8") as log:
            self._qemu = subprocess.Popen(
                [*self.our_host.enter(), *QEMU, *self._size, "-kernel", self._image / "vmlinux", "-initrd", self._image / "initrd.cpio",
                 "-append", f"{KERNEL_OPTIONS} {told}",
                 "-drive", f"id=disk,if=none,file={self._image / 'root.img'},format=raw", "-device", "virtio-blk-pci,drive=disk",
                 "-fsdev", f"local,id=host,path={self.shared},security_model=none,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                 "-chardev", f"pipe,id=bell,path={self._jobs / 'bell'}", "-device", "virtio-serial-pci",
                 "-device", "virtserialport,chardev=bell,name=commands",
                 "-netdev", f"tap,id=net,ifname={NETDEV},script=no,downscript=no",
                 "-device", "virtio-net-pci,netdev=net,mac=52:54:00:77:00:01,host_mtu=9000",
                 "-device", "virtio-rng-pci", "-serial", f"file:{console}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        gids = self._jobs / "gids"
        if not harness.poll_until(lambda: gids.exists() or not self.is_up(), BOOT_SECONDS) or not self.is_up():
            raise RuntimeError(f"the virtual machine does not start:\n{(self._jobs / 'qemu').read_text()}"
                               f"{console.read_text(errors='replace') if console.exists() else ''}")
        self._bell = os.open(self._jobs / "bell.in", os.O_WRONLY)
        table = {gid: int(index) for index, gid in (line.split() for line in gids.read_text().splitlines())}
        self.gids = {"ipv4": table["0000:0000:0000:0000:0000:ffff:0a4d:000b"],
                     "ipv6": table["fd77:0000:0000:0000:0000:0000:0000:000b"]}

    def is_up(self):
        return self._qemu.poll() is None

    @staticmethod
    def within(path):
        """The path in the machine of one of our files under /host."""
        return f"/host/{path.parent.name}/{path.name}"

    def begin(self, command):
        """Starts a shell command in its own session; returns the prefix of the paths of its output and exit status."""
        path = self._jobs / str(next(self._numbers))
        pid = self.within(path.with_suffix(".pid"))
        path.with_suffix(".sh").write_text(f"setsid -w bash -c {shlex.quote(f'echo $$ > {pid}; {command}')}\n", encoding="utf-8")
        os.write(self._bell, f"{path.name}\n".encode())
        return path

    def run(self, command, seconds=60):
        """Runs a shell command in the machine: (exit status, None if it did not end in time; output)."""
        job = Job(self, command)
        status = job.wait(seconds)
        return status, job.output

    def start(self, _, *words, seconds=60):
        """Starts a program in the machine, and ends it after `seconds`."""
        return Job(self, f"exec timeout {seconds} {' '.join(map(str, words))}")

    def wait_for_listener(self, port, seconds=60):
        """Waits until something in the machine listens on a TCP port; returns whether it does."""
        status, _ = self.run(f"for ((i = 0; i < {seconds * 50}; i++)); do "
                             f"grep -qi ':{port:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.02; done; exit 1",
                             seconds + 5)
        return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of the cable")
    parser.add_argument("command", nargs="*", help="command to run; without one, only makes the image")
    options = parser.parse_args()
    print(f"image: {image()}")
    if options.command:
        with harness.Hosts(options.build) as hosts, KernelVm(hosts, options.mtu) as machine:
            status, output = machine.run(" ".join(options.command), 600)
        print(output, end="")
        sys.exit(status)


if __name__ == "__main__":
    main()
