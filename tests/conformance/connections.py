# SPDX-License-Identifier: Apache-2.0
"""Debian's programs that connect by address: which are run, with which options, and what their output must contain.
run_connections.py runs them; the interoperability test runs some of them against the kernel.

In commands, {server}, {client}, {any} and {group} are addresses of the run's address family, and {port} is a port.
"""

import dataclasses
import re
from typing import Optional

import harness



FAMILIES = ("ipv4", "ipv6")
ANY = {"ipv4": "0.0.0.0", "ipv6": "::"}
GROUP = {"ipv4": "239.47.91.3", "ipv6": "ff05::4793"}


@dataclasses.dataclass(frozen=True)
class Connecting:
    program: str
    server: str
    client: str
    families: tuple = FAMILIES
    seconds: int = 60
    server_stays: bool = False       # the server runs until it is killed
    counts_listener: bool = True     # the agent counts its listener; otherwise its output shows when it is ready
    ready: str = ""
    ready_by_tcp: bool = False       # it is ready when it listens on a TCP port
    expect_server: str = ""          # patterns that the output must match
    expect_client: str = ""
    topology: Optional[str] = None   # the only topology to run it on: "one_host", "two_hosts"
    one_host_netdev: str = "lo"

    def runs_on(self, topology):
        return self.topology in (None, topology)

    @property
    def name(self):
        return " ".join(self.client.replace("{server}", "S").replace("{port}", "P").split())

    def complaint(self, result):
        """A complaint about a finished run, or None."""
        if result.client_status != 0 or (not self.server_stays and result.server_status != 0):
            return f"server {result.server_status}, client {result.client_status}"
        for pattern, output, who in ((self.expect_client, result.client.output, "client"),
                                     (self.expect_server, result.server.output, "server")):
            if pattern and not re.search(pattern, output):
                return f"the {who}'s output has no '{pattern}'"
        return None


def rping(*options, count=10):
    words = " ".join(options)
    return Connecting("rping", f"rping -s -a {{any}} -p {{port}} -v -V -C {count} {words}",
                      f"rping -c -a {{server}} -p {{port}} -v -V -C {count} {words}",
                      expect_client=rf"(?s)(ping data: .*){{{count}}}")


def ucmatose(*options, server=()):
    """Server and client must be given the same number of connections."""
    messages = "-C 0" not in " ".join(options)
    return Connecting("ucmatose", f"ucmatose -b {{any}} -p {{port}} {' '.join([*options, *server])}",
                      f"ucmatose -s {{server}} -p {{port}} {' '.join(options)}",
                      expect_client=r"data transfers complete(?s:.*)return status 0" if messages else "return status 0",
                      expect_server="return status 0")


def udaddy(*options):
    words = " ".join(options)
    return Connecting("udaddy", f"udaddy -b {{any}} {words}", f"udaddy -s {{server}} {words}",
                      expect_client=r"data transfers complete(?s:.*)return status 0", expect_server="return status 0")


def mckey(*options):
    """The sender waits three seconds before it sends. Receivers on its own host get its messages too."""
    words = " ".join(options)
    return Connecting("mckey", f"mckey -m {{group}} -b {{server}} {words}", f"mckey -m {{group}} -b {{client}} -s {words}",
                      counts_listener=False, ready="joined dgid", one_host_netdev="eth0",
                      expect_server=r"data transfers complete(?s:.*)return status 0")


def stream(program, *options, **more):
    words = " ".join(options)
    return Connecting(program, f"{program} -b {{any}} -p {{port}} {words}", f"{program} -s {{server}} -p {{port}} {words}",
                      seconds=120, expect_client=r"\d+k?\s.*\d+\.\d+", **more)


def perftest(program, *options):
    words = " ".join(options)
    return Connecting(program, f"{program} -R -F -p {{port}} {words}", f"{program} -R -F -p {{port}} {words} {{server}}",
                      families=("ipv4",), expect_client=r"\n\s*\d+\s+\d+\s")


def fio(verb, block, depth, size="4m"):
    """fio. With "send", the server posts each receive only after the previous message has arrived, and rnr_retry is 0. So it
    fails if the next message comes too early."""
    common = f"--ioengine=rdma --port={{port}} --bs={block} --iodepth={depth} --size={size} --thread"
    return Connecting("fio", f"fio --name=server --rw=read {common}",
                      f"fio --name=client --rw=write {common} --verb={verb} --hostname={{server}}", families=("ipv4",),
                      expect_client=r"WRITE: bw=", expect_server=r"waiting for connection")


def cmtime():
    """cmtime. Since rdma-core 52 its ends connect over TCP first, and it asks getaddrinfo(3) for IPv4 only. Since 59 its
    options differ."""
    release = harness.rdma_core_release("rdmacm-utils")
    more = {"families": FAMILIES if release < 52 else ("ipv4",), "expect_client": r"disconnect\s*:?\s+[0-9]"}
    if release < 59:
        return Connecting("cmtime", "cmtime -b {any} -p {port} -c 100", "cmtime -s {server} -p {port} -c 100", server_stays=True, **more)
    return Connecting("cmtime", "cmtime -L -b {server} -C {server} -p {port} -c 100", "cmtime -b {client} -C {server} -p {port} -c 100",
                      counts_listener=False, ready_by_tcp=True, **more)


def connecting():
    return [
        rping(), rping("-S", "60000", count=5), rping("-q"), rping("-S", "23", count=1),
        ucmatose(), ucmatose("-c", "10"), ucmatose("-c", "4", "-C", "50", "-S", "4096"), ucmatose("-m"), ucmatose("-C", "0"),
        ucmatose("-P", "ib"), ucmatose("-a", "18"), ucmatose("-f", "ip"),
        udaddy(), udaddy("-c", "5"), udaddy("-C", "20", "-S", "1000"), udaddy("-P", "ipoib"),
        mckey(), mckey("-c", "3", "-C", "5"), mckey("-p", "0x2"),
        cmtime(),
        Connecting("rdma_client", "rdma_server -s {any} -p {port}", "rdma_client -s {server} -p {port}",
                   expect_client="end 0", expect_server="end 0"),
        fio("send", "4k", 16, "32m"), fio("send", "64k", 8, "64m"), fio("write", "64k", 4), fio("read", "64k", 4),
        # The server uses the first wildcard address, which is IPv4.
        Connecting("rdma_xclient", "rdma_xserver -p {port} -c r", "rdma_xclient -s {server} -p {port} -c r",
                   families=("ipv4",), expect_client="end 0", expect_server="end 0"),
        Connecting("rdma_xclient", "rdma_xserver -p {port} -c x", "rdma_xclient -s {server} -p {port} -c x",
                   families=("ipv4",), expect_client="end 0", expect_server="end 0"),
    ]


def with_connection_manager():
    """perftest with -R, which connects through librdmacm."""
    cases = []
    for operation in ("send", "write", "read", "atomic"):
        cases += [perftest(f"ib_{operation}_bw", "-n", "500"), perftest(f"ib_{operation}_lat", "-n", "200"),
                  perftest(f"ib_{operation}_bw", "-n", "200", "-q", "8")]
    return cases + [
        perftest("ib_send_bw", "-c", "UD", "-s", "1024", "-n", "500"), perftest("ib_send_bw", "-n", "300", "-b"),
        perftest("ib_send_bw", "-n", "300", "-e"), perftest("ib_write_bw", "-a", "-n", "40"),
        perftest("ib_send_lat", "-c", "UD", "-s", "1024", "-n", "200"), perftest("ib_send_bw", "--use-srq", "-n", "300"),
        perftest("ib_send_bw", "-T", "104", "-n", "200"),
    ]


def all_cases():
    return connecting() + with_connection_manager()


def programs():
    return list(dict.fromkeys(case.program for case in all_cases()))


