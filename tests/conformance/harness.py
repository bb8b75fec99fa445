# SPDX-License-Identifier: Apache-2.0
"""Hosts to run unmodified RDMA programs on: network namespaces of our own, an ordinary user, deadlines.

    with harness.Hosts(build) as hosts:
        server, client = hosts.two()
        result = harness.pair(server, client, ["ib_write_bw"])

Everything made here is gone when the `with` block ends, by whatever way; what a killed run left behind is removed by
the next one.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77  # what ctest counts as skipped
NOBODY = 65534
NAMESPACE = re.compile(r"verbena-(\d+)-\w+$")


# How the programs of one host reach each other, and what their environment says of it. None: nothing, even if ours does.
ROUTES = {"local": {"VERBENA_LOCAL": None}, "wire": {"VERBENA_LOCAL": "off"}}


def add_route_option(parser):
    parser.add_argument("--route", choices=ROUTES, default="local",
                        help="how the programs of one host reach each other: by memory, as they do by default, or by UDP, as "
                        "those of two hosts do (VERBENA_LOCAL=off)")


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def require_root():
    if os.geteuid() != 0:
        skip("network namespaces need root")


def require_tap():
    """link_emulator makes network devices of its own."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        skip("bad links need /dev/net/tun")


def ucx_knows_verbs():
    """Whether the system's UCX has its module for verbs. That of Debian sid was built without (1.23~rc1)."""
    return any(pathlib.Path("/usr/lib").glob("*/ucx/libuct_ib.so*"))


def rdma_core_release(package):
    """The release of rdma-core that this package of Debian's is from, as a number: 44. 0: it is not installed."""
    version = sh("dpkg-query", "-W", "-f", "${Version}", package, check=False)
    found = re.match(r"(\d+)\.", version)
    return int(found.group(1)) if found else 0


def require_programs(*names):
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        skip(f"not installed: {' '.join(missing)} (scripts/setup test)")


def parser(description):
    """For the command line of a test, which has to say --build."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--build", required=True, help="the build folder, such as build/release")
    return made


def begin(description, *programs):
    """Reads the command line, and skips the test without root or one of these programs. `description`: of the test, or a parser."""
    options = (parser(description) if isinstance(description, str) else description).parse_args()
    require_root()
    require_programs(*programs)
    return options


def poll_until(condition, seconds, step=0.01):
    """The first true answer of condition(), or its last answer when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(step)


def sh(*command, check=True):
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if check and ran.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def set_in_kernel(namespace, name, value):
    """What /proc/sys has of a network namespace."""
    sh("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > /proc/sys/net/{name}")


class Build:
    """A build folder, and a copy of it that an ordinary user may read where the folder itself is closed to them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.program = self.folder / "bin" / "verbena"
        self._copy = None
        if not self.program.exists():
            raise RuntimeError(f"{self.program} is not built")
        if os.geteuid() == 0 and not self._readable():
            self._install()

    def _readable(self):
        return subprocess.run([*ordinary_user(), "test", "-x", str(self.program)], check=False).returncode == 0

    def _install(self):
        self._copy = tempfile.TemporaryDirectory(prefix="verbena-installed-")
        os.chmod(self._copy.name, 0o755)
        sh("cmake", "--install", self.folder, "--prefix", self._copy.name)
        self.program = pathlib.Path(self._copy.name) / "bin" / "verbena"

    def close(self):
        if self._copy:
            self._copy.cleanup()


def ordinary_user():
    """Prefix of a command that root starts as nobody in particular, with no privilege and none to be gained."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]


# Debian 13 builds UCX with MPI: ucx_perftest then takes itself for a part of an MPI job unless its input is a terminal.
WANT_TERMINAL = {"ucx_perftest"}


class Process:
    """A program that was started, with its output; the namespace and user prefixes exec it, so pid is its own. What its
    environment adds to ours is given; a value of None takes a variable away."""

    def __init__(self, command, environment=None):
        self.command = [str(word) for word in command]
        self._output = tempfile.TemporaryFile()
        self._final = None  # the output, once the process is gone and the file closed
        with contextlib.ExitStack() as until_started:
            given = subprocess.DEVNULL
            self._terminal = None  # our end of the program's terminal
            if WANT_TERMINAL.intersection(self.command):
                ours, given = os.openpty()
                self._terminal = os.fdopen(ours, "rb", buffering=0)
                until_started.callback(os.close, given)
            self._popen = subprocess.Popen(
                self.command, stdin=given, stdout=self._output, stderr=subprocess.STDOUT,
                env={name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None},
                cwd="/", start_new_session=True)
        self.pid = self._popen.pid
        self.network_of = self.pid  # a process in the same network namespace
        self.began = time.monotonic()

    @property
    def output(self):
        if self._final is not None:
            return self._final
        # Not by seek(): the program writes where the file's one offset is.
        written = os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)
        return written.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")

    def running(self):
        return self._popen.poll() is None

    def wait(self, seconds):
        """Its exit status; None if it is still running after that time."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, number=signal.SIGKILL):
        """Ends it and whatever it started in its session."""
        if self._final is not None:
            return  # it has been done, and the number may be another's by now
        if self._popen.poll() is None or number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            self._popen.wait()
            self._final = self.output
            self._output.close()
            if self._terminal is not None:
                self._terminal.close()

    def listens(self, port):
        """Whether some socket of its network namespace listens on a TCP port."""
        return listens(self.network_of, port)


def listens(pid, port):
    """Whether some socket of the process's network namespace listens on a TCP port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


class Emulator(Process):
    """A link_emulator, the bad link between two hosts."""

    def end(self):
        """Ends it; what it counted, for each direction: "there", from the first host to the second, and "back"."""
        self.kill(signal.SIGTERM)
        self.wait(10)
        counted = json.loads(self.output.split("ready\n", 1)[1])
        self.kill()
        return counted


class Host:
    """One machine: a network namespace, or (namespace None) the one we are in. `ipv4` and `ipv6` reach it."""

    def __init__(self, hosts, namespace, ipv4, ipv6, netdev):
        self.hosts = hosts
        self.namespace = namespace
        self.ipv4 = ipv4
        self.ipv6 = ipv6
        self.netdev = netdev
        self.environment = {}

    def enter(self):
        return ["ip", "netns", "exec", self.namespace] if self.namespace else []

    def start(self, command, user=None, environment=None):
        """Starts a command as it stands, as an ordinary user unless user=[]."""
        prefix = self.enter() + (ordinary_user() if user is None else user)
        process = Process(prefix + [str(word) for word in command],
                          {**self.hosts.environment, **self.environment, **(environment or {})})
        self.hosts.processes.append(process)
        return process

    def verbena(self, *arguments, **options):
        """Starts `verbena ARGUMENTS`."""
        return self.start([self.hosts.build.program, *arguments], **options)

    def run(self, *command, seconds=30, **options):
        """Runs a program under `verbena run` to its end: (exit status or None, output)."""
        return self.finish(self.verbena("run", *command, **options), seconds)

    def command(self, *arguments, seconds=30, **options):
        """Runs `verbena ARGUMENTS` to its end: (exit status or None, output)."""
        return self.finish(self.verbena(*arguments, **options), seconds)

    @staticmethod
    def finish(process, seconds):
        status = process.wait(seconds)
        if status is None:
            process.kill()
        return status, process.output

    def status(self, user=None):
        """What `verbena status --json` says."""
        code, output = self.command("status", "--json", user=user)
        if code != 0:
            raise RuntimeError(f"verbena status --json: {code}\n{output}")
        return json.loads(output)

    def gid_index(self, address, device=None, user=None):
        """The index of an address in the GID table, as ibv_devinfo shows it."""
        code, output = self.run("ibv_devinfo", "-v", *(["-d", device] if device else []), user=user)
        wanted = f"::ffff:{address}" if ":" not in address else address
        for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s+([0-9a-fA-F:.]+)", output):
            if gid == wanted:
                return int(index)
        raise RuntimeError(f"no GID {wanted} in what ibv_devinfo -v says (exit {code}):\n{output}")

    def agents(self):
        """Process ids of the agents in this host's namespace."""
        if not self.namespace:
            return []
        found = []
        for pid in sh("ip", "netns", "pids", self.namespace, check=False).split():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "verbena-agent":
                    found.append(int(pid))
        return found

    def end_agents(self):
        """As a user would. Nothing speaks for this host until the next program comes."""
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not poll_until(lambda: not self.agents(), 10):
            raise RuntimeError(f"agents do not end: {self.agents()}")

    def start_agent(self, *options):
        """Root's, which serves every user here. It answers when this returns: a program that comes before would start another."""
        agent = self.verbena("agent", *options, user=[])
        poll_until(lambda: not agent.running() or self.command("status", user=[])[1].startswith("Agent "), 20)
        if not agent.running():
            raise RuntimeError(f"root's agent does not come up:\n{agent.output}")

    def mac(self):
        """The address of its network device."""
        return re.search(r"link/\w+ ([0-9a-f:]{17})", sh("ip", "-n", self.namespace, "link", "show", self.netdev)).group(1)


def remote_shell(folder, build, host):
    """A program that mpirun calls in place of ssh: starts the command on the other host, under `verbena run` and with a host name
    of its own. It skips ssh's options and the host's address, as there is only one."""
    script = pathlib.Path(folder) / "remote_shell"
    enter = " ".join(host.enter())
    program = shlex.quote(str(build.program))
    script.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\n"
                      f"exec {enter} unshare --uts sh -c 'hostname second; exec {program} run sh -c \"$*\"' sh \"$@\"\n",
                      encoding="utf-8")
    script.chmod(0o755)
    return script


class Judge:
    """Prints what each check came to, keeps what failed, and ends the program with it."""

    def __init__(self):
        self.failures = []

    def say(self, what, wrong):
        """`wrong`: what is wrong, or None."""
        print(f"{what:70} {'FAILED' if wrong else 'ok'}", flush=True)
        if wrong:
            self.failures.append(f"{what}\n{wrong}")

    def exit(self):
        for failure in self.failures:
            print(f"\n=== {failure}")
        sys.exit(1 if self.failures else 0)


class Hosts:
    """Makes hosts, and takes them away again."""

    def __init__(self, build, route="local"):
        self.environment = ROUTES[route]  # of every program that is started on them
        self.build = build if isinstance(build, Build) else Build(build)
        self.processes = []
        self._namespaces = []
        self._next_port = 18515

    def __enter__(self):
        remove_leftovers()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, *_):
        # A second signal must not interrupt the cleaning.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for process in self.processes:
            process.kill()
        for namespace in self._namespaces:
            remove_namespace(namespace)
        self.build.close()

    def port(self):
        """A TCP port that no earlier run of this test has used."""
        self._next_port += 1
        return self._next_port

    def here(self):
        """This machine as it is."""
        return Host(self, None, "127.0.0.1", "::1", "lo")

    def one(self):
        """A machine with a loopback device and nothing else."""
        require_root()
        namespace = self._namespace("a")
        return Host(self, namespace, "127.0.0.1", "::1", "lo")

    def two(self, mtu=1500):
        """Two machines joined by a cable."""
        require_root()
        first, second = self._namespace("a"), self._namespace("b")
        sh("ip", "link", "add", "eth0", "netns", first, "mtu", mtu, "type", "veth",
           "peer", "name", "eth0", "netns", second, "mtu", mtu)
        return self._with_addresses(first, second)

    def two_far(self, link, mtu=1500, ipv6=True, prefix=()):
        """Two machines joined by a bad link, and the link: what it does is said by options of link_emulator. Without IPv6 no
        packet is sent that no program sends. `prefix`: the beginning of the emulator's command, such as chrt's."""
        require_root()
        first, second = self._namespace("a"), self._namespace("b")
        emulator = self.link_emulator(first, "eth0", "eth1", link, prefix)
        sh("ip", "-n", first, "link", "set", "eth1", "netns", second, "name", "eth0")
        for namespace in (first, second):
            sh("ip", "-n", namespace, "link", "set", "eth0", "mtu", mtu)
            if not ipv6:
                set_in_kernel(namespace, "ipv6/conf/all/disable_ipv6", 1)
        return self._with_addresses(first, second, ipv6=ipv6), emulator

    def link_emulator(self, namespace, first, second, link, prefix=()):
        """A bad link between two devices that it makes."""
        require_tap()
        emulator = Emulator([*prefix, "ip", "netns", "exec", namespace, self.build.folder / "tests" / "link_emulator", first, second,
                             *link])
        self.processes.append(emulator)
        if not poll_until(lambda: "ready" in emulator.output or not emulator.running(), 10) or not emulator.running():
            raise RuntimeError(f"link_emulator: {emulator.output}")
        for device in (first, second):
            # The emulator loses packets; a queue in front of it that is full while it waits for a processor should not.
            sh("ip", "-n", namespace, "link", "set", device, "txqueuelen", 4000)
        return emulator

    def at_a_switch(self, count):
        """So many machines, each with a cable to the same switch."""
        require_root()
        middle = self._namespace("s")
        sh("ip", "-n", middle, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", middle, "link", "set", "br0", "up")
        namespaces = []
        for number in range(count):
            namespaces.append(self._namespace("h"))
            sh("ip", "link", "add", "eth0", "netns", namespaces[-1], "type", "veth",
               "peer", "name", f"port{number}", "netns", middle)
            sh("ip", "-n", middle, "link", "set", f"port{number}", "master", "br0", "up")
        return self._with_addresses(*namespaces)

    def _with_addresses(self, *namespaces, ipv6=True):
        hosts = []
        for number, namespace in enumerate(namespaces, 1):
            ipv4, address = f"10.9.0.{number}", f"fd09::{number}"
            sh("ip", "-n", namespace, "addr", "add", f"{ipv4}/24", "dev", "eth0")
            if ipv6:
                sh("ip", "-n", namespace, "addr", "add", f"{address}/64", "dev", "eth0", "nodad")
            sh("ip", "-n", namespace, "link", "set", "eth0", "up")
            hosts.append(Host(self, namespace, ipv4, address, "eth0"))
        for host in hosts:
            # A device of an emulator's has no other state than that its cable is there.
            if not poll_until(lambda h=host: re.search("LOWER_UP.* state (UP|UNKNOWN)",
                                                       sh("ip", "-n", h.namespace, "link", "show", "eth0"))
                              and "tentative" not in sh("ip", "-n", h.namespace, "-6", "addr"), 10):
                raise RuntimeError(f"{host.namespace}: the link does not come up")
        return hosts

    def _namespace(self, letter):
        name = f"verbena-{os.getpid()}-{letter}{len(self._namespaces)}"
        sh("ip", "netns", "add", name)
        self._namespaces.append(name)
        # Nobody else can have our addresses; looking for duplicates would take a second of every test.
        set_in_kernel(name, "ipv6/conf/default/accept_dad", 0)
        sh("ip", "-n", name, "link", "set", "lo", "up")
        return name


def remove_namespace(name):
    def ended():
        pids = sh("ip", "netns", "pids", name, check=False).split()
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        return not pids
    poll_until(ended, 5)
    sh("ip", "netns", "del", name, check=False)


def remove_leftovers():
    """Removes the namespaces of test runs that were killed."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return
    for line in sh("ip", "netns", "list", check=False).splitlines():
        name = line.split()[0]
        if (owner := NAMESPACE.match(name)) and not os.path.exists(f"/proc/{owner.group(1)}"):
            remove_namespace(name)


class Result:
    """How a server and its client ended."""

    def __init__(self, server, client, server_status, client_status, others=(), traces=""):
        self.server, self.client = server, client
        self.server_status, self.client_status = server_status, client_status
        self.others = others  # further clients, each with its status
        self.traces = traces  # of those that did not end in time
        self.seconds = time.monotonic() - client.began

    @property
    def good(self):
        return self.server_status == 0 and self.client_status == 0 and all(status == 0 for _, status in self.others)

    def report(self):
        parts = []
        for name, process, status in (("server", self.server, self.server_status),
                                      ("client", self.client, self.client_status),
                                      *(("client", *other) for other in self.others)):
            how = "did not end in time" if status is None else f"exit status {status}"
            parts.append(f"--- {name}: {' '.join(process.command)}\n{process.output}--- {name}: {how}")
        return "\n".join([*parts, self.traces])


class Shared:
    """A case of a test that has no class of its own for them, for share_of()."""

    def __init__(self, program, case):
        self.program, self.case = program, case


def share_of(cases, share, every=1):
    """Which cases a share such as "1/3" has: the first of each program, and of the others every third, from number 1. `every`
    makes a smaller share of it: with 4 every twelfth. A larger first number, such as 4 in "4/3", takes others of the twelve."""
    part, parts = (int(word) for word in (share or "0/1").split("/"))
    parts *= every
    if parts == 1:
        return cases
    firsts = {case.program: case for case in reversed(cases)}
    return [case for number, case in enumerate(cases)
            if case is firsts[case.program] or number % parts == part % parts]


def add_share_options(parser):
    parser.add_argument("--share", default=os.environ.get("VERBENA_CONFORMANCE_SHARE", ""), metavar="K/N",
                        help="only the first case of each program and the K-th of N parts of the others; default: "
                        "$VERBENA_CONFORMANCE_SHARE, or all")
    parser.add_argument("--every", type=int, default=1, metavar="M", help="of these (or of all) only one of M")


def end(*started):
    """Ends the processes, each given with its host. What has happened to the queue pairs of those that were still running."""
    hung = [(host, process) for host, process in started if process.running()]
    traces = [f"--- trace of {process.pid}\n{host.command('trace', process.pid)[1]}" for host, process in hung]
    for _, process in started:
        process.kill()
    return "\n".join(traces)


def pair(server, client, command, *, server_options=(), client_options=(), address=None, seconds=60, port=None,
         port_option="-p", environment=None, wrap=None):
    """Runs `command` as a server on one host and, towards it, as a client on another, both under `verbena run`."""
    port = port or server.hosts.port()
    words = [*command, port_option, port]
    start = wrap or (lambda host, *program: host.verbena("run", *program, environment=environment))
    serving = start(server, *words, *server_options)
    if not poll_until(lambda: serving.listens(port) or not serving.running(), 20):
        serving.kill()
    calling = start(client, *words, *client_options, address or server.ipv4)
    deadline = time.monotonic() + seconds
    client_status = calling.wait(seconds)
    # A server whose client failed may wait without end; one whose client is through has little left to do.
    server_status = serving.wait(max(0.0, min(deadline - time.monotonic(), 10.0)) if client_status == 0 else 1)
    traces = end((server, serving), (client, calling))
    return Result(serving, calling, server_status, client_status, traces=traces)


@contextlib.contextmanager
def shared_files(count, size=64 << 20):
    """So many files in memory, full of zeros, that everybody may read and write."""
    with tempfile.TemporaryDirectory(prefix="verbena-shared-", dir="/dev/shm") as folder:
        pathlib.Path(folder).chmod(0o755)
        paths = [pathlib.Path(folder) / str(i) for i in range(count)]
        for path in paths:
            with open(path, "wb") as file:
                file.truncate(size)
            path.chmod(0o666)
        yield paths


def crowd(server, client, command, count, *, server_options=(), client_options=(), address=None, seconds=60,
          environment=None):
    """Runs `command` as a server on one host and, towards it, as so many clients on another."""
    port = server.hosts.port()
    words = ["run", *command, "-p", port]
    serving = server.verbena(*words, *server_options, environment=environment)
    if not poll_until(lambda: serving.listens(port) or not serving.running(), 20):
        serving.kill()
    calling = [client.verbena(*words, *client_options, address or server.ipv4, environment=environment)
               for _ in range(count)]
    deadline = time.monotonic() + seconds
    statuses = [process.wait(max(0.0, deadline - time.monotonic())) for process in calling]
    server_status = serving.wait(max(0.0, min(deadline - time.monotonic(), 10.0)) if not any(statuses) else 1)
    traces = end((server, serving), *((client, process) for process in calling))
    return Result(serving, calling[0], server_status, statuses[0], list(zip(calling, statuses))[1:], traces)


def raw_pair(server, client, command, *, seconds=60, environment=None):
    """Runs a program for raw Ethernet, which talks by nothing else, as root: the server, and once its queue pair is up the
    client. Without a client: the server alone."""
    def begin(host, peer, side):
        return host.verbena("run", *command, "-d", f"rxe_{host.netdev}", f"--{side}", "-B", host.mac(),
                            "-E", (peer or host).mac(), user=[], environment=environment)

    def is_up():
        states = [pair["state"] for process in server.status(user=[])["processes"] for pair in process["queue_pairs"]
                  if process["pid"] == serving.pid]
        return "RTS" in states or "RTR" in states or not serving.running()

    serving = begin(server, client, "server")
    if client is None:
        status = serving.wait(seconds)
        serving.kill()
        return Result(serving, serving, status, status)
    poll_until(is_up, 20, step=0.1)
    calling = begin(client, server, "client")
    client_status = calling.wait(seconds)
    server_status = serving.wait(10.0 if client_status == 0 else 1)
    for process in (serving, calling):
        process.kill()
    return Result(serving, calling, server_status, client_status)


def routes(server, client, *, wanted=None, **options):
    """What `verbena status` says of the routes of two queue pairs that exchange messages: names, in order, each once. Empty
    if they do not get that far; [None] if it says nothing of routes. A queue pair begins by the wire, and on a busy machine much
    goes by that before it is led to another route: one that is `wanted` is waited for."""
    return routes_of(busy_pairs(server, client, settled=lambda pairs: wanted in (None, "wire") or routes_of(pairs) == [wanted],
                                **options))


def routes_of(pairs):
    return sorted({pair.get("route") for pair in pairs}, key=str)


def start_pair(server, client, *options, server_environment=None, client_environment=None, serving_program="ib_write_bw",
               user=None):
    """Starts ib_write_bw on both hosts, as a server and as a client towards it: the two processes."""
    port = server.hosts.port()
    words = ("-F", *options, "-p", port)
    serving = server.verbena("run", serving_program, *words, environment=server_environment, user=user)
    poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    return serving, client.verbena("run", "ib_write_bw", *words, server.ipv4, environment=client_environment, user=user)


def busy_pairs(server, client, *, server_environment=None, client_environment=None, serving_program="ib_write_bw", user=None,
               settled=lambda pairs: True):
    """What `verbena status` says of two queue pairs that exchange messages, once they are `settled`, or have had 20 seconds for
    that. Empty if they do not get that far."""
    serving, calling = start_pair(server, client, "-D", "60", server_environment=server_environment,
                                  client_environment=client_environment, serving_program=serving_program, user=user)

    last = []

    def connected():
        """Whether so much has gone between both queue pairs that their route is found."""
        processes = [process for host in dict.fromkeys((server, client)) for process in host.status()["processes"]
                     if process["pid"] in (serving.pid, calling.pid)]
        pairs = [pair for process in processes for pair in process["queue_pairs"]]
        sent = sum(pair["counters"]["sent_packets"] for pair in pairs)
        if len(pairs) != 2 or sent < 10000:
            return False
        last[:] = pairs
        return settled(pairs)

    poll_until(lambda: not (serving.running() and calling.running()) or connected(), 20, step=0.1)
    for process in (serving, calling):
        process.kill()
    return last


# What the programs say of speed. Each answers None where the output has no such figure.

def bandwidth(output):
    """Average MB/s of perftest's last line of figures."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", output, re.MULTILINE)
    return float(rows[-1]) if rows else None


def latency(output):
    """Typical microseconds of perftest's first line of figures. The deviation is -nan where one exchange took longer than
    46 ms, as perftest squares it as an int."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s+(?:[\d.]+|-?nan)\s+[\d.]+\s+[\d.]+\s*$",
                      output, re.MULTILINE)
    return float(rows[0]) if rows else None


def round_trip(output):
    """Microseconds for each exchange, as rdma-core's pingpong programs print it."""
    found = re.search(r"=\s*([\d.]+) usec/iter", output)
    return float(found.group(1)) if found else None
