#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests NETLINK_RDMA sockets under the preload: with programs that do not know about it, and with hostile neighbours.

netlink_test.py LIBRARY HELPER

Each test runs a function of this file as a program under the preload. The requests (rdma system) need no agent, so none
starts.
"""
import ctypes
import errno
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

NETLINK_ROUTE, NETLINK_USERSOCK, NETLINK_RDMA = 0, 2, 20
SO_PROTOCOL = 38
SYS_GET = 5 << 10 | 6
NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE, RTM_GETLINK = 1, 0x300, 2, 3, 18
NETNS_MODE, COPY_ON_FORK = 66, 93
NOBODY = 65534
SECONDS = 20


# ---- test programs

def open_rdma(**options):
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA, **options)
    one.settimeout(SECONDS)
    return one


def protocol_of(one):
    return one.getsockopt(socket.SOL_SOCKET, SO_PROTOCOL)


def request(kind=SYS_GET, flags=NLM_F_REQUEST, sequence=5, payload=b""):
    return struct.pack("=IHHII", 16 + len(payload), kind, flags, sequence, 0) + payload


def ask(one, sequence=5):
    """Requests the system's settings; checks and returns the answer."""
    one.sendto(request(sequence=sequence), (0, 0))
    answer, sender = one.recvfrom(4096)
    length, kind, _, answered, port = struct.unpack_from("=IHHII", answer)
    assert (length, kind, answered, port) == (len(answer), SYS_GET, sequence, one.getsockname()[0]), answer
    assert sender[1] == 0, sender
    attributes, rest = {}, answer[16:]
    while rest:
        size, name = struct.unpack_from("=HH", rest)
        attributes[name], rest = rest[4:size], rest[(size + 3) & ~3:]
    return attributes


def helpers_of(pid):
    """The helpers of a process: processes with a pidfd of it at the helper's descriptor number."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/comm", encoding="utf-8") as comm, open(f"/proc/{name}/fdinfo/4", encoding="utf-8") as info:
                if comm.read().startswith("verbena-rdma-ne") and f"\nPid:\t{pid}\n" in info.read():
                    found.append(int(name))
        except OSError:
            pass
    return found


def is_answered():
    one = open_rdma()
    one.bind((0, 0))
    assert protocol_of(one) == NETLINK_USERSOCK
    for sequence in range(100):
        attributes = ask(one, sequence)
        assert attributes[NETNS_MODE] == b"\0", attributes


def is_the_kernels():
    try:
        assert protocol_of(open_rdma()) == NETLINK_RDMA
    except OSError as error:
        assert error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT), error


def has_its_processes_port():
    """The first socket's port is the pid, since many programs rely on that."""
    one = open_rdma()
    one.bind((0, 0))
    assert one.getsockname()[0] == os.getpid(), one.getsockname()


def other_sockets_are_the_kernels():
    ask(open_rdma())
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
    route.settimeout(SECONDS)
    assert protocol_of(route) == NETLINK_ROUTE
    route.sendto(request(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, payload=bytes(16)), (0, 0))
    assert struct.unpack_from("=IH", route.recv(65536))[1] == 16  # RTM_NEWLINK
    ours = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    ours.bind((0, 0))
    peer = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    peer.sendto(b"x" * 20, (ours.getsockname()[0], 0))
    assert ours.recv(100) == b"x" * 20
    udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    udp[0].bind(("127.0.0.1", 0))
    udp[1].sendto(b"hello", udp[0].getsockname())
    assert udp[0].recv(100) == b"hello"


def by_sendmsg_and_copies():
    one = open_rdma()
    copy = socket.socket(fileno=os.dup(one.fileno()))
    one.close()
    copy.settimeout(SECONDS)
    copy.sendmsg([request()[:10], request()[10:]], [], 0, (0, 0))
    assert struct.unpack_from("=IH", copy.recv(4096))[1] == SYS_GET


def sees_no_child():
    heard = []
    signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
    one = open_rdma()
    ask(one)
    assert len(helpers_of(os.getpid())) == 1
    try:
        os.waitpid(-1, os.WNOHANG)
        raise AssertionError("there is a child")
    except ChildProcessError:
        pass
    os.kill(helpers_of(os.getpid())[0], signal.SIGKILL)
    while helpers_of(os.getpid()):
        time.sleep(0.01)
    assert not heard
    ask(one)  # from another helper


def masks_and_descriptors_stay():
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    descriptors = os.listdir("/proc/self/fd")
    one = open_rdma()
    ask(one)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before != mask
    assert len(os.listdir("/proc/self/fd")) == len(descriptors) + 1


def children_ask_too():
    one = open_rdma()
    ask(one)
    child = os.fork()
    if child == 0:
        ask(open_rdma())
        ask(one)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(helpers_of(os.getpid())) == 1


def a_child_outlives_its_parent():
    """A child still gets answers after the helper has ended with the parent."""
    one = open_rdma()
    ask(one)
    parent = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    while helpers_of(parent):
        time.sleep(0.01)
    ask(one)
    ask(open_rdma())
    assert len(helpers_of(os.getpid())) == 1


def threads_share_one():
    failed = []

    def work():
        try:
            for _ in range(10):
                with open_rdma() as one:
                    ask(one)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len(helpers_of(os.getpid())) == 1


def wrong_pointers_are_the_kernels_business():
    libc = ctypes.CDLL(None, use_errno=True)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert libc.sendto(udp.fileno(), b"x", 1, 0, ctypes.c_void_p(1), 12) == -1
    assert ctypes.get_errno() == errno.EFAULT
    assert libc.sendmsg(udp.fileno(), None, 0) == -1
    assert ctypes.get_errno() == errno.EFAULT


def without_descriptors_left():
    """With any descriptor limit, socket() must succeed or fail cleanly."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    for spare in range(5):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, 4096))
        try:
            open_rdma().close()
        except OSError:
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    ask(open_rdma())


def takes_nothing_of_strangers():
    """Messages from other processes must not be taken for the kernel's."""
    one = open_rdma()
    ask(one)
    stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    try:
        stranger.sendto(request(), (one.getsockname()[0], 0))
        raise AssertionError("it was taken")
    except ConnectionRefusedError:
        pass
    one.setblocking(False)
    try:
        raise AssertionError(one.recv(100))
    except BlockingIOError:
        pass


def forge(text, kind=SYS_GET, sequence=5):
    return struct.pack("=IHHII", 16 + len(text), kind, 0, sequence, os.getpid()) + text


def nothing_from_before_the_first_question_is_believed():
    """A neighbour writes before the socket is connected: acknowledgements of all numbers that were once used first, then an
    answer."""
    one = open_rdma()
    one.bind((0, 0))
    stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    to = (one.getsockname()[0], 0)
    for number in range(8):
        acknowledgement = struct.pack("=i", 0) + request(1, 5, 0xffffffff - number)
        stranger.sendto(forge(acknowledgement, NLMSG_ERROR, 0xffffffff - number), to)
    stranger.sendto(forge(struct.pack("=HHB3x", 5, NETNS_MODE, 7)), to)
    assert ask(one)[NETNS_MODE] == b"\0"


def take_port_of(helper, port):
    """A neighbour's socket with the port of a helper that has ended."""
    end = os.pidfd_open(helper)
    yield
    select.select([end], [], [])
    stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    stranger.bind((port, 0))
    stranger.setblocking(False)
    yield stranger


def assert_heard_nothing(stranger):
    try:
        raise AssertionError(stranger.recv(100))
    except BlockingIOError:
        pass


def nobody_takes_the_place_of_a_parents_helper():
    """As in a daemon: a child sends requests, and its own child outlives it."""
    works, tell = os.pipe()
    if os.fork() == 0:
        one = open_rdma()
        ask(one)
        taking = take_port_of(helpers_of(os.getpid())[0], one.getpeername()[0])
        next(taking)
        if os.fork() != 0:
            os._exit(0)
        stranger = next(taking)
        ask(open_rdma())
        ask(one)
        assert_heard_nothing(stranger)
        os.write(tell, b"x")
        os._exit(0)
    os.close(tell)
    assert os.read(works, 1) == b"x"


def nobody_takes_the_place_of_a_helper_that_was_killed():
    one, bound = open_rdma(), open_rdma()
    ask(one)
    helper = helpers_of(os.getpid())[0]
    taking = take_port_of(helper, one.getpeername()[0])
    next(taking)
    os.kill(helper, signal.SIGKILL)
    stranger = next(taking)
    ask(one)
    ask(bound)
    assert_heard_nothing(stranger)


def reads_no_list_of_other_users_sockets():
    """Other users can make /proc/net/netlink long; without the file of counters nothing can be said."""
    def reads():
        with open("/proc/self/io", "rb", buffering=0) as counters:
            return int(counters.read(4096).split(b"syscr: ")[1].split()[0])
    one = open_rdma()
    ask(one)
    if not os.path.exists("/proc/self/io"):
        return
    before = reads()
    for sequence in range(20):
        ask(one, sequence)
    assert reads() - before <= 2, reads() - before


def other_users_are_not_answered():
    one = open_rdma()
    ask(one)
    helper = one.getpeername()[0]
    told, tell = os.pipe()
    go, may_go = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
        stranger.sendto(request(), (helper, 0))
        stranger.setblocking(False)
        os.write(tell, b"x")
        os.read(go, 1)
        try:
            stranger.recv(100)
            os._exit(1)
        except BlockingIOError:
            os._exit(0)
    os.read(told, 1)
    ask(one)  # sent after the stranger's message, so that one has been processed
    os.write(may_go, b"x")
    assert os.waitpid(child, 0)[1] == 0


def answers_are_for_their_own_socket():
    """A new socket gets the port of one that was just closed, while answers to that one are on their way."""
    for _ in range(200):
        with open_rdma() as one:
            one.sendto(request(sequence=1) * 20, (0, 0))
        with open_rdma() as one:
            ask(one, 2)


def who_becomes_another_user_is_answered():
    one = open_rdma()
    ask(one)
    os.setuid(NOBODY)
    if os.access(os.environ["HELPER"], os.X_OK):
        ask(open_rdma())
        ask(one)


def garbage_is_survived():
    one = open_rdma()
    for garbage in (b"x", bytes(15), bytes(16), b"\xff" * 100, request()[:12], request(SYS_GET, 1, 1, b"\1\0\1\0"), bytes(40000)):
        try:
            one.sendto(garbage, (0, 0))
        except OSError as error:
            assert error.errno == errno.EMSGSIZE, error
    one.close()
    ask(open_rdma())


# Changes all its user IDs to root, gets a helper, and prints the helper's environment.
SET_USER_ID_PROGRAM = r"""
#define _GNU_SOURCE
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
  if (setresuid(0, 0, 0) != 0) return 2;
  int rdma = socket(16, SOCK_RAW, 20), protocol = 0;
  socklen_t size = sizeof protocol;
  if (getsockopt(rdma, SOL_SOCKET, 38, &protocol, &size) != 0 || protocol != 2) return 3;
  char* nothing[] = {0};
  execle("/bin/sh", "sh", "-c",
         "for one in /proc/[0-9]*; do"
         "  read -r name 2>/dev/null <$one/comm && [ \"$name\" = verbena-rdma-ne ] || continue;"
         "  [ \"$(sed -n 's/^Pid:[^0-9]*//p' $one/fdinfo/4 2>/dev/null)\" = $$ ] || continue;"
         "  tr '\\0' '\\n' <$one/environ; echo shown; done", (char*)0, nothing);
  return 4;
}
"""


# ---- tests

class Netlink(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="verbena-facade-")
        self.addCleanup(shutil.rmtree, self.home)
        self.library, self.helper = LIBRARY, HELPER
        self.assertTrue(os.access(HELPER, os.X_OK), HELPER)

    def run_function(self, function, home=None, library=None):
        environment = dict(os.environ, LD_PRELOAD=library or self.library, VERBENA_SYS_DIR=home or self.home, HELPER=self.helper)
        with tempfile.TemporaryFile() as output:
            program = subprocess.Popen([sys.executable, __file__, "--run", function.__name__], env=environment, stdout=output,
                                       stderr=subprocess.STDOUT)
            try:
                status = program.wait(60)
            finally:
                program.kill()
            output.seek(0)
            self.assertEqual(status, 0, output.read().decode())
        return program.pid

    def assert_ends(self, pid):
        for _ in range(SECONDS * 100):
            if not helpers_of(pid):
                return
            time.sleep(0.01)
        self.fail("the helper is still there")

    def test_the_helper_ends_with_the_program(self):
        self.assert_ends(self.run_function(is_answered))

    def test_who_reads_what_the_program_prints_sees_its_end(self):
        environment = dict(os.environ, LD_PRELOAD=self.library, VERBENA_SYS_DIR=self.home)
        command = [sys.executable, "-c", "import socket, os; socket.socket(16, 3, 20); os.write(1, b'x'); os._exit(0)"]
        self.assertEqual(subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=True).stdout, b"x")

    def test_without_a_directory_it_is_the_kernels(self):
        self.run_function(is_the_kernels, home=self.home + "/none")

    def test_without_the_helper_it_is_the_kernels(self):
        alone = shutil.copy(self.library, self.home)
        self.run_function(is_the_kernels, library=alone)

    def test_with_a_helper_that_cannot_run_it_is_the_kernels(self):
        alone = shutil.copy(self.library, self.home)
        os.mkdir(self.home + "/bin")
        with open(self.home + "/bin/verbena-rdma-netlink", "wb") as file:
            file.write(b"\x7fELF")
        os.chmod(self.home + "/bin/verbena-rdma-netlink", 0o755)
        self.run_function(is_the_kernels, library=alone)

    def test_installed_the_helper_is_in_the_libraries_bin(self):
        alone = shutil.copy(self.library, self.home)
        os.mkdir(self.home + "/bin")
        os.symlink(self.helper, self.home + "/bin/verbena-rdma-netlink")
        self.run_function(is_answered, library=alone)

    @unittest.skipIf(os.geteuid() != 0, "needs root, for a program that is set-user-ID")
    def test_the_helper_of_a_set_user_id_program_gets_no_environment(self):
        """`verbena system on` adds the preload to /etc/ld.so.preload, so set-user-ID programs load it too. Done here in a
        mount namespace."""
        if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
            self.skipTest("no mount namespaces here")
        if b"__asan_init" in pathlib.Path(self.helper).read_bytes():
            self.skipTest("a sanitized helper needs ASAN_OPTIONS, which it does not get here")
        place = pathlib.Path(self.home)
        os.chmod(place, 0o755)
        (place / "preload").write_text(f"{self.library}\n", encoding="ascii")
        (place / "program.c").write_text(SET_USER_ID_PROGRAM, encoding="ascii")
        program = place / "program"
        subprocess.run(["cc", "-o", program, place / "program.c"], check=True)
        os.chmod(program, 0o4755)
        script = ('mkdir "$3" "$4" && cp /etc/ld.so.cache "$3" && cp "$1" "$3/ld.so.preload" && mount --bind "$3" /etc && '
                  'mkdir -p "$4/verbena/$(stat -Lc %i /proc/self/ns/net)" && mount --bind "$4" /run && '
                  'exec setpriv --reuid=65533 --regid=65533 --clear-groups env VERBENA_AGENT=/chosen "$2"')
        words = [place / "preload", program, place / "etc", place / "run"]
        ran = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *words], capture_output=True, text=True,
                             timeout=SECONDS, check=False)
        self.assertEqual((ran.returncode, ran.stderr, ran.stdout), (0, "", "shown\n"))

    @unittest.skipIf(os.geteuid() != 0, "needs root, to become another user")
    def test_other_users_are_not_answered(self):
        self.run_function(other_users_are_not_answered)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to become another user")
    def test_who_becomes_another_user_is_answered(self):
        self.run_function(who_becomes_another_user_is_answered)


def add_test(function):
    def test(self):
        self.run_function(function)
    setattr(Netlink, "test_" + function.__name__, test)


for each in (has_its_processes_port, other_sockets_are_the_kernels, by_sendmsg_and_copies, sees_no_child, masks_and_descriptors_stay,
             children_ask_too, a_child_outlives_its_parent, threads_share_one, wrong_pointers_are_the_kernels_business,
             without_descriptors_left, takes_nothing_of_strangers, nothing_from_before_the_first_question_is_believed,
             nobody_takes_the_place_of_a_parents_helper, nobody_takes_the_place_of_a_helper_that_was_killed,
             reads_no_list_of_other_users_sockets, answers_are_for_their_own_socket, garbage_is_survived):
    add_test(each)

if __name__ == "__main__":
    if sys.argv[1] == "--run":
        globals()[sys.argv[2]]()
    else:
        LIBRARY, HELPER = map(os.path.abspath, sys.argv[1:3])
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
