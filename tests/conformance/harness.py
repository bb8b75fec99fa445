# SPDX-License-Identifier: Apache-2.0
"""Hosts for unmodified RDMA programs: network namespaces, an ordinary user, deadlines.

    with harness.Hosts(build) as hosts:
        server, client = hosts.two()
        result = harness.pair(server, client, ["ib_write_bw"])

The end of the `with` block removes everything that was made, even after an exception. The next run removes what a killed run
left.
"""

import argparse
import contextlib
import functools
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

SKIPPED = 77  # the exit status that ctest counts as skipped
NOBODY = 65534
NAMESPACE = re.compile(r"verbena-(\d+)-\w+$")


# For each route between programs of one host, the environment that selects it. None: the variable is unset, even if ours has it.
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
    """Skips the test if this process cannot make TAP devices, which link_emulator needs."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        skip("bad links need /dev/net/tun")


def ucx_knows_verbs():
    """Whether the system's UCX has its verbs module. UCX 1.23~rc1 in Debian sid was built without it."""
    return any(pathlib.Path("/usr/lib").glob("*/ucx/libuct_ib.so*"))


def rdma_core_release(package):
    """The rdma-core release of an installed Debian package, as a number such as 44; 0 if it is not installed."""
    version = sh("dpkg-query", "-W", "-f", "${Version}", package, check=False)
    found = re.match(r"(\d+)\.", version)
    return int(found.group(1)) if found else 0


def require_programs(*names):
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        skip(f"not installed: {' '.join(missing)} (scripts/setup test)")


def parser(description):
    """A command-line parser for a test, with the required option --build."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--build", required=True, help="the build folder, such as build/release")
    return made


def begin(description, *programs):
    """Parses the command line. Skips the test if it does not run as root or a program is missing. `description`: the test's
    description, or a parser."""
    options = (parser(description) if isinstance(description, str) else description).parse_args()
    require_root()
    require_programs(*programs)
    return options


def poll_until(condition, seconds, step=0.01):
    """Waits until condition() returns a true value, and returns it. After `seconds`, returns the last value."""
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
    """Sets an entry of /proc/sys/net in a network namespace."""
    sh("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > /proc/sys/net/{name}")


class Build:
    """A build folder. If an ordinary user may not read it, an installed copy that everyone may read."""

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
    """Command prefix with which root starts a program as user `nobody`, without privileges and without a way to gain any."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]


# In Debian 13 UCX is built with MPI: unless its input is a terminal, ucx_perftest believes that it is part of an MPI job.
WANT_TERMINAL = {"ucx_perftest"}


class Process:
    """A started program and its output. The prefixes for namespace and user exec the program, so pid is its own. `environment`
    is added to ours; a value of None removes a variable."""

    def __init__(self, command, environment=None):
        self.command = [str(word) for word in command]
        self._output = tempfile.TemporaryFile()
        self._final = None  # the output, once the process has ended and the file is closed
        with contextlib.ExitStack() as until_started:
            given = subprocess.DEVNULL
            self._terminal = None  # our end of the program's pseudo-terminal
            if WANT_TERMINAL.intersection(self.command):
                ours, given = os.openpty()
                self._terminal = os.fdopen(ours, "rb", buffering=0)
                until_started.callback(os.close, given)
            self._popen = subprocess.Popen(
                self.command, stdin=given, stdout=self._output, stderr=subprocess.STDOUT,
                env={name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None},
                cwd="/", start_new_session=True)
        self.pid = self._popen.pid
        self.network_of = self.pid  # pid of a process in the same network namespace
        self.began = time.monotonic()

    @property
    def output(self):
        if self._final is not None:
            return self._final
        # pread() instead of seek(): the program writes at the file's shared offset.
        written = os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)
        return written.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")

    def running(self):
        return self._popen.poll() is None

    def wait(self, seconds):
        """Returns the exit status, or None if the program still runs after `seconds`."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, number=signal.SIGKILL):
        """Ends the process and everything it started in its session."""
        if self._final is not None:
            return  # already done, and the pid may have been reused
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
        """Whether a socket in its network namespace listens on this TCP port."""
        return listens(self.network_of, port)


def listens(pid, port):
    """Whether a socket in the process's network namespace listens on this TCP port."""
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
    """A running link_emulator: the bad link between two hosts."""

    def end(self):
        """Ends the emulator. Returns its counters per direction: "there" is from the first host to the second, "back" the
        reverse."""
        self.kill(signal.SIGTERM)
        self.wait(10)
        counted = json.loads(self.output.split("ready\n", 1)[1])
        self.kill()
        return counted


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
            return comm.read().strip()
    except OSError:
        return ""


class Host:
    """A host: a network namespace, or (namespace None) this machine. It is reachable at `ipv4` and `ipv6`."""

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
        """Starts a command without `verbena run`, as an ordinary user unless user=[]."""
        prefix = self.enter() + (ordinary_user() if user is None else user)
        process = Process(prefix + [str(word) for word in command],
                          {**self.hosts.environment, **self.environment, **(environment or {})})
        self.hosts.processes.append(process)
        return process

    def verbena(self, *arguments, **options):
        """Starts `verbena ARGUMENTS`."""
        return self.start([self.hosts.build.program, *arguments], **options)

    def run(self, *command, seconds=30, **options):
        """Runs a program under `verbena run`: (exit status, None if it did not end in time; output)."""
        return self.finish(self.verbena("run", *command, **options), seconds)

    def command(self, *arguments, seconds=30, **options):
        """Runs `verbena ARGUMENTS`: (exit status, None if it did not end in time; output)."""
        return self.finish(self.verbena(*arguments, **options), seconds)

    @staticmethod
    def finish(process, seconds):
        status = process.wait(seconds)
        if status is None:
            process.kill()
        return status, process.output

    def status(self, user=None):
        """The parsed output of `verbena status --json`."""
        code, output = self.command("status", "--json", user=user)
        if code != 0:
            raise RuntimeError(f"verbena status --json: {code}\n{output}")
        return json.loads(output)

    def gid_index(self, address, device=None, user=None):
        """The index of an address in the GID table that ibv_devinfo prints."""
        code, output = self.run("ibv_devinfo", "-v", *(["-d", device] if device else []), user=user)
        wanted = f"::ffff:{address}" if ":" not in address else address
        for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s+([0-9a-fA-F:.]+)", output):
            if gid == wanted:
                return int(index)
        raise RuntimeError(f"no GID {wanted} in what ibv_devinfo -v says (exit {code}):\n{output}")

    def agents(self):
        """The pids of the agents in this host's namespace."""
        if not self.namespace:
            return []
        found = []
        for pid in sh("ip", "netns", "pids", self.namespace, check=False).split():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "verbena-agent":
                    found.append(int(pid))
        return found

    def has_standby(self):
        """Whether an agent's standby is ready: it has taken over what it needs to stand in for the agent."""
        return any(name_of(pid) == "verbena-keeper" for pid in self.agents())

    def end_agents(self):
        """Ends the agents with SIGTERM, as a user would. The next program starts a new one."""
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not poll_until(lambda: not self.agents(), 10):
            raise RuntimeError(f"agents do not end: {self.agents()}")

    def await_free_port(self):
        """Waits until no socket has UDP port 4791. The kernel closes an ended agent's sockets a little after its program is gone
        from /proc, and the next agent would find the port taken."""
        def is_free():
            sockets = sh("ip", "netns", "exec", self.namespace, "cat", "/proc/net/udp", "/proc/net/udp6")
            return not re.search(rf":{4791:04X} ", sockets)
        if not poll_until(is_free, 10):
            raise RuntimeError("UDP port 4791 stays taken")

    def start_agent(self, *options):
        """Starts root's agent, which serves every user, and waits until it answers: a program started earlier would start its
        own agent."""
        agent = self.verbena("agent", *options, user=[])
        poll_until(lambda: not agent.running() or self.command("status", user=[])[1].startswith("Agent "), 20)
        if not agent.running():
            raise RuntimeError(f"root's agent does not come up:\n{agent.output}")

    def mac(self):
        """The MAC address of the host's network device."""
        return re.search(r"link/\w+ ([0-9a-f:]{17})", sh("ip", "-n", self.namespace, "link", "show", self.netdev)).group(1)


def remote_shell(folder, build, host):
    """A program that mpirun calls instead of ssh. It starts the command on the other host under `verbena run`, with its own
    host name. It ignores ssh's options and address, since there is only one other host."""
    script = pathlib.Path(folder) / "remote_shell"
    enter = " ".join(host.enter())
    program = shlex.quote(str(build.program))
    script.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\n"
                      f"exec {enter} unshare --uts sh -c 'hostname second; exec {program} run sh -c \"$*\"' sh \"$@\"\n",
                      encoding="utf-8")
    script.chmod(0o755)
    return script


class Judge:
    """Prints the result of each check, remembers the failures, and sets the exit status."""

    def __init__(self):
        self.failures = []

    def say(self, what, wrong):
        """Reports one check. `wrong`: a complaint, or None."""
        print(f"{what:70} {'FAILED' if wrong else 'ok'}", flush=True)
        if wrong:
            self.failures.append(f"{what}\n{wrong}")

    def exit(self):
        for failure in self.failures:
            print(f"\n=== {failure}")
        sys.exit(1 if self.failures else 0)


class Hosts:
    """Creates hosts, and removes them at the end."""

    def __init__(self, build, route="local"):
        self.environment = ROUTES[route]  # the environment of all programs started on the hosts
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
        # A second signal must not interrupt the cleanup.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for process in self.processes:
            process.kill()
        for namespace in self._namespaces:
            remove_namespace(namespace)
        self.build.close()

    def port(self):
        """A TCP port that was not used before in this run."""
        self._next_port += 1
        return self._next_port

    def here(self):
        """This machine without a namespace of its own."""
        return Host(self, None, "127.0.0.1", "::1", "lo")

    def one(self):
        """A host with only a loopback device."""
        require_root()
        namespace = self._namespace("a")
        return Host(self, namespace, "127.0.0.1", "::1", "lo")

    def two(self, mtu=1500):
        """Two hosts joined by a cable (veth pair)."""
        require_root()
        first, second = self._namespace("a"), self._namespace("b")
        sh("ip", "link", "add", "eth0", "netns", first, "mtu", mtu, "type", "veth",
           "peer", "name", "eth0", "netns", second, "mtu", mtu)
        return self._with_addresses(first, second)

    def two_far(self, link, mtu=1500, ipv6=True, prefix=()):
        """Two hosts joined by a link_emulator, and the emulator. `link`: options of link_emulator. Without IPv6, no packets
        are sent except those of programs. `prefix`: words in front of the emulator's command, such as chrt's."""
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
        """Starts a link_emulator, which creates the two devices."""
        require_tap()
        emulator = Emulator([*prefix, "ip", "netns", "exec", namespace, self.build.folder / "tests" / "link_emulator", first, second,
                             *link])
        self.processes.append(emulator)
        if not poll_until(lambda: "ready" in emulator.output or not emulator.running(), 10) or not emulator.running():
            raise RuntimeError(f"link_emulator: {emulator.output}")
        for device in (first, second):
            # Only the emulator should lose packets. So the queue in front of it must not overflow while it waits for a processor.
            sh("ip", "-n", namespace, "link", "set", device, "txqueuelen", 4000)
        return emulator

    def at_a_switch(self, count):
        """`count` hosts, each with a cable to the same switch."""
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
            # A TAP device of the emulator has state UNKNOWN instead of UP.
            if not poll_until(lambda h=host: re.search("LOWER_UP.* state (UP|UNKNOWN)",
                                                       sh("ip", "-n", h.namespace, "link", "show", "eth0"))
                              and "tentative" not in sh("ip", "-n", h.namespace, "-6", "addr"), 10):
                raise RuntimeError(f"{host.namespace}: the link does not come up")
        return hosts

    def _namespace(self, letter):
        name = f"verbena-{os.getpid()}-{letter}{len(self._namespaces)}"
        sh("ip", "netns", "add", name)
        self._namespaces.append(name)
        # Duplicates of our addresses are impossible; detecting them would add a second to every test.
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
    """The results of a server and its client."""

    def __init__(self, server, client, server_status, client_status, others=(), traces=""):
        self.server, self.client = server, client
        self.server_status, self.client_status = server_status, client_status
        self.others = others  # further clients, each with its exit status
        self.traces = traces  # traces of the processes that did not end in time
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
    """A case for share_of(), for tests without a class of their own for cases."""

    def __init__(self, program, case):
        self.program, self.case = program, case


def share_of(cases, share, every=1):
    """Returns the cases of a share such as "1/3": the first case of each program, and every third of the others, beginning
    with number 1. `every` reduces the share: with 4, every twelfth. Then "4/3" selects a different twelfth."""
    part, parts = (int(word) for word in (share or "0/1").split("/"))
    parts *= every
    if parts == 1:
        return cases
    firsts = {case.program: case for case in reversed(cases)}
    return [case for number, case in enumerate(cases)
            if case is firsts[case.program] or number % parts == part % parts]


def add_share_options(parser):
    parser.add_argument("--share", default=os.environ.get("VERBENA_CONFORMANCE_SHARE", ""), metavar="K/N",
                        help="run the first case of each program and the K-th of N parts of the others; default: "
                        "$VERBENA_CONFORMANCE_SHARE, or all")
    parser.add_argument("--every", type=int, default=1, metavar="M", help="run only one in M of the other cases")


def end(*started):
    """Ends the processes, each given with its host. Returns the traces of those that were still running."""
    hung = [(host, process) for host, process in started if process.running()]
    traces = [f"--- trace of {process.pid}\n{host.command('trace', process.pid)[1]}" for host, process in hung]
    for _, process in started:
        process.kill()
    return "\n".join(traces)


def repeats_if_clock_disturbed(text):
    """For functions that run perftest and return a result whose output is text(result). perftest gives up if other guests of the
    machine disturb its measurement of the processor clock (get_clock.c). The programs then run again, at most four times."""
    def decorated(run):
        @functools.wraps(run)
        def repeat(*arguments, **options):
            for _ in range(5):
                result = run(*arguments, **options)
                if "Correlation coefficient r^2" not in text(result):
                    break
            return result
        return repeat
    return decorated


@repeats_if_clock_disturbed(Result.report)
def pair(server, client, command, *, server_options=(), client_options=(), address=None, seconds=60, port=None,
         port_option="-p", environment=None, wrap=None):
    """Runs `command` as a server on one host and as its client on the other, both under `verbena run`."""
    port = port or server.hosts.port()
    words = [*command, port_option, port]
    start = wrap or (lambda host, *program: host.verbena("run", *program, environment=environment))
    serving = start(server, *words, *server_options)
    if not poll_until(lambda: serving.listens(port) or not serving.running(), 20):
        serving.kill()
    calling = start(client, *words, *client_options, address or server.ipv4)
    deadline = time.monotonic() + seconds
    client_status = calling.wait(seconds)
    # A server may wait forever if its client failed. After a successful client it needs little time.
    server_status = serving.wait(max(0.0, min(deadline - time.monotonic(), 10.0)) if client_status == 0 else 1)
    traces = end((server, serving), (client, calling))
    return Result(serving, calling, server_status, client_status, traces=traces)


@contextlib.contextmanager
def shared_files(count, size=64 << 20):
    """`count` shared files in /dev/shm, filled with zeros, that everyone may read and write."""
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
    """Runs `command` as a server on one host and as `count` clients on another."""
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


@repeats_if_clock_disturbed(Result.report)
def raw_pair(server, client, command, *, seconds=60, environment=None):
    """Runs a program for raw Ethernet as root: the server, and the client once the server's queue pair is up. Such programs do
    not use TCP. Without a client: the server alone."""
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
    """Runs two queue pairs that exchange messages. Returns the sorted names of their routes in `verbena status`, without
    repetition. Empty: they did not get that far. [None]: the status shows no routes. A queue pair begins on the wire, and on a
    busy machine may change its route late: with `wanted`, waits for that route."""
    return routes_of(busy_pairs(server, client, settled=lambda pairs: wanted in (None, "wire") or routes_of(pairs) == [wanted],
                                **options))


def routes_of(pairs):
    return sorted({pair.get("route") for pair in pairs}, key=str)


def start_pair(server, client, *options, server_environment=None, client_environment=None, serving_program="ib_write_bw",
               user=None):
    """Starts ib_write_bw on both hosts, as server and client; returns the two processes."""
    port = server.hosts.port()
    words = ("-F", *options, "-p", port)
    serving = server.verbena("run", serving_program, *words, environment=server_environment, user=user)
    poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    return serving, client.verbena("run", "ib_write_bw", *words, server.ipv4, environment=client_environment, user=user)


def busy_pairs(server, client, *, server_environment=None, client_environment=None, serving_program="ib_write_bw", user=None,
               settled=lambda pairs: True):
    """Runs two queue pairs that exchange messages. Returns their entries in `verbena status` once they are `settled`, or after
    20 seconds. Empty if they do not get that far."""
    serving, calling = start_pair(server, client, "-D", "60", server_environment=server_environment,
                                  client_environment=client_environment, serving_program=serving_program, user=user)

    last = []

    def connected():
        """Whether both have exchanged so many packets that their route is known."""
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


# Parsers for the figures in programs' output. Each returns None if the output has no such figure.

def bandwidth(output):
    """Average MB/s in perftest's last line of figures."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", output, re.MULTILINE)
    return float(rows[-1]) if rows else None


def latency(output):
    """Typical latency in microseconds in perftest's first line of figures. Its standard deviation is -nan if an iteration took
    longer than 46 ms, because perftest squares it as an int."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s+(?:[\d.]+|-?nan)\s+[\d.]+\s+[\d.]+\s*$",
                      output, re.MULTILINE)
    return float(rows[0]) if rows else None


def round_trip(output):
    """Microseconds per exchange, as printed by rdma-core's pingpong programs."""
    found = re.search(r"=\s*([\d.]+) usec/iter", output)
    return float(found.group(1)) if found else None
