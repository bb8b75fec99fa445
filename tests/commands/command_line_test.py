#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py VERBENA: the command as a user sees it: exit statuses, help, and error messages for wrong usage."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

VERBENA = SOURCES = None
USAGE, FAILED, NOT_EXECUTABLE, NOT_FOUND = 2, 1, 126, 127


def verbena(*arguments, environment=None):
    return subprocess.run([VERBENA, *arguments], capture_output=True, text=True, timeout=30, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})


class Usage(unittest.TestCase):
    def assert_told(self, arguments, *expected):
        ran = verbena(*arguments)
        self.assertEqual(ran.returncode, USAGE, ran.stdout + ran.stderr)
        self.assertEqual(ran.stdout, "")
        for text in expected:
            self.assertIn(text, ran.stderr)

    def test_help_shows_every_command_and_an_example(self):
        ran = verbena("--help")
        self.assertEqual(ran.returncode, 0)
        for text in ("run", "link", "status", "capture", "agent", "doctor", "explain", "system", "verbena run ib_write_bw"):
            self.assertIn(text, ran.stdout)

    def test_every_command_has_help_with_its_usage(self):
        for words in (["run"], ["link"], ["link", "show"], ["link", "add"], ["link", "del"], ["status"], ["capture"], ["agent"],
                      ["metrics"], ["top"], ["doctor"], ["explain"], ["system"], ["system", "on"]):
            ran = verbena(*words, "--help")
            self.assertEqual(ran.returncode, 0)
            self.assertIn("Usage: verbena " + " ".join(words), ran.stdout)

    def test_version(self):
        ran = verbena("--version")
        self.assertEqual(ran.returncode, 0)
        self.assertRegex(ran.stdout, r"^verbena \d+\.\d+\.\d+\n$")

    def test_no_command(self):
        self.assert_told([], "verbena --help")

    def test_unknown_command(self):
        self.assert_told(["rum", "true"], "unknown command 'rum'; did you mean 'run'?", "verbena --help")
        self.assert_told(["staus"], "unknown command 'staus'; did you mean 'status'?")
        self.assert_told(["frobnicate"], "unknown command 'frobnicate'\n")
        self.assert_told(["link", "shwo"], "unknown command 'shwo' of 'verbena link'; did you mean 'show'?")
        self.assert_told(["system", "onn"], "unknown command 'onn' of 'verbena system'; did you mean 'on'?")

    def test_help_does_not_hide_an_unknown_command(self):
        self.assert_told(["frobnicate", "--help"], "unknown command 'frobnicate'")
        self.assert_told(["link", "shwo", "--help"], "unknown command 'shwo'")
        self.assert_told(["help", "staus"], "unknown command 'staus'; did you mean 'status'?")

    def test_help_of_a_command(self):
        for words in (["status"], ["link", "add"], ["link"], ["run"], []):
            self.assertEqual(verbena("help", *words).stdout, verbena(*words, "--help").stdout)
        self.assertIn("Usage: verbena link add", verbena("help", "link", "add").stdout)
        self.assertIn("rping", verbena("help", "rping").stdout)

    def test_unknown_option(self):
        self.assert_told(["status", "--jason"], "unknown option '--jason'; did you mean '--json'?", "verbena status --help")
        self.assert_told(["top", "--intervall=2"], "unknown option '--intervall=2'; did you mean '--interval'?")

    def test_run_without_a_program(self):
        self.assert_told(["run"], "the program is missing")
        self.assert_told(["run", "--"], "the program is missing")

    def test_run_with_an_option_before_the_program(self):
        self.assert_told(["run", "-v", "true"], "unknown option '-v'")

    def test_link_shows_links_by_itself(self):
        shown = verbena("link", "show")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for words in (["link"], ["link", "list"]):
            self.assertEqual(verbena(*words).stdout, shown.stdout)

    def test_values_that_are_no_numbers(self):
        self.assert_told(["trace", "abc"], "PID: 'abc' is not a process ID")
        self.assert_told(["trace", "0"], "PID: '0' is not a process ID")
        self.assert_told(["trace", "--last", "0", "1"], "--last: '0' is not a number of events, 1 or more")
        self.assert_told(["trace", "--since", "-1", "1"], "--since: '-1' is not a number of seconds, 0.001 or more")
        self.assert_told(["trace", "--seconds", "1e3", "--follow", "1"], "--seconds: '1e3' is not a number of seconds from 1 to 86400")
        self.assert_told(["trace", "--qp", "0x1000000", "1"], "--qp: '0x1000000' is not a QP number")
        self.assert_told(["status", "--qp", "abc"], "--qp: 'abc' is not a QP number")
        self.assert_told(["status", "--pid", "me"], "--pid: 'me' is not a process ID")
        self.assert_told(["top", "--interval", "0"], "--interval: '0' is not a number of seconds from 0.1 to 60")
        self.assert_told(["top", "--count", "0"], "--count: '0' is not a number of tables from 1 to 1000000")

    def test_values_that_are_none_of_the_words(self):
        self.assert_told(["top", "--sort", "foo"], "--sort: 'foo' is not one of bytes, packets, retransmissions, rnrs, waiting")
        self.assert_told(["top", "--sort", "byte"], "did you mean 'bytes'?")
        self.assert_told(["top", "--by", "user"], "--by: 'user' is not one of process, qp, link")
        self.assert_told(["status", "--state", "UP"], "--state: 'UP' is not one of RESET, INIT, RTR, RTS, SQD, SQE, ERR")

    def test_values_that_are_missing_or_too_many(self):
        self.assert_told(["status", "--qp"], "--qp needs a value")
        self.assert_told(["capture", "--count", "1", "--count", "2", "x"], "--count can be given only once")
        self.assert_told(["status", "--json=please"], "--json takes no value")
        self.assert_told(["status", "extra"], "unexpected argument 'extra'")

    def test_trace_options_about_one_process(self):
        self.assert_told(["trace", "--qp", "1"], "give a process ID: verbena trace --qp 1 PID")
        self.assert_told(["trace", "--follow"], "give a process ID: verbena trace --follow PID")
        self.assert_told(["trace", "--seconds", "1", "4711"], "--seconds: only with --follow or --all")

    def test_helps_name_no_types_of_the_language(self):
        for words in (["status"], ["trace"], ["top"], ["capture"], ["metrics"], ["agent"], ["doctor"], ["explain"]):
            text = verbena(*words, "--help").stdout
            for internal in ("ENUM", "UINT", "FLOAT", "INT in", "->"):
                self.assertNotIn(internal, text, words)
            self.assertNotIn(" docs/", text)
            self.assertNotIn("(docs/", text)

    def test_pages_that_are_named_are_installed_ones(self):
        pages = set()
        for words in (["run"], ["metrics"], ["agent"]):
            pages |= set(re.findall(r"(/\S+/([\w-]+\.md))", verbena(*words, "--help").stdout))
        self.assertTrue(pages)
        for path, name in pages:
            self.assertTrue(path.startswith("/"), path)
            self.assertTrue((SOURCES / "docs" / name).exists(), name)

    def test_link_add_with_wrong_words(self):
        self.assert_told(["link", "add", "rxe0"], "network device is missing", "link add NAME type rxe netdev DEV")
        self.assert_told(["link", "add", "rxe0", "type", "siw", "netdev", "lo"], "'siw'")

    def test_link_set_with_wrong_words(self):
        self.assert_told(["link", "set", "rxe0"], "'peers' is missing", "link set NAME peers any")
        self.assert_told(["link", "set", "rxe0", "peers", "10.0.0.0/33"], "'10.0.0.0/33' is no address and no network")

    def test_link_del_without_a_name(self):
        self.assert_told(["link", "del"], "NAME is missing", "verbena link del --help")


    def test_metrics_at_no_place(self):
        for words in (["metrics", "--listen", "9792"], ["agent", "--metrics", "9792"]):
            ran = verbena(*words)
            self.assertEqual(ran.returncode, FAILED)
            self.assertIn("ADDRESS:PORT", ran.stderr)

    def test_system_without_a_verb(self):
        self.assert_told(["system"], "a command is missing: on, off, status", "verbena system --help")

    def test_capture_with_wrong_words(self):
        self.assert_told(["capture"], "FILE", "verbena capture --help")
        self.assert_told(["capture", "--snaplen", "63", "x"], "--snaplen: '63' is not a number of bytes from 64 to 262144")
        self.assert_told(["capture", "--seconds", "0", "x"], "--seconds: '0' is not a number of seconds from 1 to 86400")
        self.assert_told(["capture", "--count", "none", "x"], "--count: 'none' is not a number of packets, 1 or more")
        self.assert_told(["capture", "x", "y"], "unexpected argument 'y'")


class Capture(unittest.TestCase):
    def test_a_capture_of_nothing_is_a_whole_file_all_the_same(self):
        ran = subprocess.run([VERBENA, "capture", "--seconds", "1", "-"], capture_output=True, timeout=30, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue(ran.stdout.startswith(b"\n\r\r\n"), ran.stdout[:8])
        self.assertIn(b"0 packets written, 0 left out", ran.stderr)
        self.assertIn(b"traffic on the wire: tcpdump -i any udp port 4791", ran.stderr)

    def test_a_file_is_for_its_owner_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "x.pcapng")
            self.assertEqual(verbena("capture", "--seconds", "1", file).returncode, 0)
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)

    def test_a_file_that_is_there_is_for_its_owner_alone_from_now_on(self):
        with tempfile.TemporaryDirectory() as folder:
            file, link = os.path.join(folder, "x.pcapng"), os.path.join(folder, "link")
            os.symlink(file, link)
            for name in (file, link):
                with open(file, "wb") as old:
                    old.write(bytes(1 << 20))
                os.chmod(file, 0o644)
                self.assertEqual(verbena("capture", "--seconds", "1", name).returncode, 0)
                self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
                self.assertLess(os.stat(file).st_size, 1 << 20)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to have files of another user")
    def test_another_users_file_pipe_or_link_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o1777)
            own, file, link, pipe = (os.path.join(folder, name) for name in ("own", "file", "link", "pipe"))
            for name in (own, file):
                with open(name, "wb") as old:
                    old.write(b"kept")
            os.symlink(own, link)
            os.mkfifo(pipe)
            end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            self.addCleanup(os.close, end)
            for name in (file, link, pipe):
                os.chown(name, 65534, 65534, follow_symlinks=False)
                ran = verbena("capture", "--seconds", "1", name)
                self.assertEqual(ran.returncode, FAILED, name)
                self.assertIn("another user's file or link is there", ran.stderr)
            for name in (own, file):
                with open(name, "rb") as old:
                    self.assertEqual(old.read(), b"kept")

    @unittest.skipIf(os.geteuid() != 0, "needs root, to have a folder of another user")
    def test_a_link_that_was_moved_into_another_users_folder_leads_to_nothing_there(self):
        with tempfile.TemporaryDirectory() as folder:
            own, link, file = (os.path.join(folder, name) for name in ("own", "link", "x.pcapng"))
            with open(own, "wb") as old:
                old.write(b"kept")
            os.symlink("x.pcapng", link)
            self.assertEqual(verbena("capture", "--seconds", "1", link).returncode, 0)
            self.assertEqual(verbena("capture", "--seconds", "1", link).returncode, 0, "the file exists now")
            os.remove(file)
            os.symlink(own, file)  # as the folder's owner may do
            os.chown(file, 65534, 65534, follow_symlinks=False)
            os.chown(folder, 65534, 65534)
            os.chmod(folder, 0o755)
            ran = verbena("capture", "--seconds", "1", link)
            self.assertEqual(ran.returncode, FAILED)
            self.assertIn("another user's file or link is there", ran.stderr)
            with open(own, "rb") as old:
                self.assertEqual(old.read(), b"kept")

    def test_pipes_by_their_names(self):
        for file in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            ran = subprocess.run([VERBENA, "capture", "--seconds", "1", file], capture_output=True, timeout=30, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertTrue(ran.stdout.startswith(b"\n\r\r\n"), ran.stdout[:8])
        self.assertEqual(verbena("capture", "--seconds", "1", "/dev/null").returncode, 0)

    def test_a_file_that_cannot_be_made(self):
        ran = verbena("capture", "/nowhere/x.pcapng")
        self.assertEqual(ran.returncode, FAILED)
        self.assertIn("cannot write '/nowhere/x.pcapng'", ran.stderr)

    def test_a_full_disk_is_an_error(self):
        ran = verbena("capture", "--seconds", "5", "/dev/full")
        self.assertEqual(ran.returncode, FAILED)
        self.assertIn("cannot write", ran.stderr)

    def test_a_link_that_is_not_there(self):
        ran = verbena("capture", "--link", "rxe_nowhere", "/dev/null")
        self.assertEqual(ran.returncode, FAILED)
        self.assertIn("no link 'rxe_nowhere'", ran.stderr)


class Run(unittest.TestCase):
    def test_exit_status_is_the_programs(self):
        self.assertEqual(verbena("run", "sh", "-c", "exit 7").returncode, 7)

    def test_everything_after_the_program_is_the_programs(self):
        ran = verbena("run", "echo", "--help", "--", "-x", "run")
        self.assertEqual(ran.stdout, "--help -- -x run\n")
        ran = verbena("run", "--", "echo", "--version")
        self.assertEqual(ran.stdout.split()[0], "echo")

    def test_unknown_program(self):
        ran = verbena("run", "no-such-program-at-all")
        self.assertEqual(ran.returncode, NOT_FOUND)
        self.assertEqual(ran.stderr, "verbena: there is no program 'no-such-program-at-all' in PATH; if it lies elsewhere, give its path, "
                         "such as ./no-such-program-at-all\n")

    def test_file_that_is_no_program(self):
        with tempfile.NamedTemporaryFile() as file:
            ran = verbena("run", file.name)
            self.assertEqual(ran.returncode, NOT_EXECUTABLE)
            self.assertIn(file.name, ran.stderr)

    def refused(self, content, mode=0o755):
        """The reason that `verbena run` prints when it refuses a file with this content."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "file")
            with open(file, "wb") as stream:
                stream.write(content)
            os.chmod(file, mode)
            ran = verbena("run", file)
        self.assertEqual(ran.returncode, NOT_EXECUTABLE, ran.stderr)
        self.assertTrue(ran.stderr.startswith(f"verbena: cannot run '{file}': "), ran.stderr)
        return ran.stderr.split("': ", 1)[1]

    def test_a_program_for_another_machine(self):
        with open("/bin/true", "rb") as file:
            program = bytearray(file.read())
        for number, name in ((183, "64-bit ARM"), (243, "RISC-V"), (9999, "ELF machine 9999")):
            program[18:20] = number.to_bytes(2, sys.byteorder)
            self.assertIn(f"it is built for {name}, and this machine is ", self.refused(program))

    def test_a_file_that_is_neither_program_nor_script(self):
        self.assertEqual(self.refused(b"\0\1\2"), "it is neither a program nor a script\n")
        self.assertEqual(self.refused(b"#!/nowhere/sh\n"), "it needs '/nowhere/sh', which is not there\n")
        self.assertIn("it is not executable; if it is a program, 'chmod +x ", self.refused(b"x", 0o644))

    def test_a_script_without_a_first_line_is_the_shells(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "script")
            with open(file, "w", encoding="ascii") as stream:
                stream.write('echo "$1" "$0"\n')
            os.chmod(file, 0o755)
            ran = verbena("run", file, "one")
        self.assertEqual((ran.returncode, ran.stdout), (0, f"one {file}\n"))

    def test_root_is_not_warned_of_roots_programs(self):
        if os.geteuid() != 0:
            self.skipTest("only root makes such programs")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            program = shutil.copy("/bin/true", folder)
            os.chmod(program, 0o6755)
            self.assertEqual(verbena("run", program).stderr, "")
            os.chown(program, 12345, 0)
            os.chmod(program, 0o4755)
            self.assertIn("is set-user-ID", verbena("run", program).stderr)

    def test_address_sanitizers_options_are_kept(self):
        def options(**environment):
            return verbena("run", "sh", "-c", 'echo "$ASAN_OPTIONS"', environment=environment).stdout.strip()
        self.assertEqual(options(ASAN_OPTIONS="a=1"), "a=1:verify_asan_link_order=0")
        self.assertEqual(options(ASAN_OPTIONS="verify_asan_link_order=1"), "verify_asan_link_order=1")
        self.assertEqual(options(ASAN_OPTIONS="", LD_PRELOAD="libdl.so.2"), "")

    def without(self, *files, command=("run", "true")):
        """Runs `verbena run true`, or another command, in a mount namespace where these files are missing."""
        hide = "; ".join(f"mount -t tmpfs none {file}" if file == "/proc" else f"rm -f {file}" for file in files)
        script = f"set -e; mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; {hide}; exec \"$@\""
        return subprocess.run(["unshare", "-mn", "sh", "-c", script, "sh", VERBENA, *command], capture_output=True, text=True,
                              timeout=60, check=False, stdin=subprocess.DEVNULL)

    def test_without_proc_or_null_it_says_what_is_missing(self):
        if os.geteuid() != 0:
            self.skipTest("only root hides files")
        ran = self.without("/proc")
        self.assertEqual(ran.returncode, FAILED)
        self.assertIn("/proc is not mounted", ran.stderr)
        self.assertIn("mount -t proc proc /proc", ran.stderr)
        self.assertIn("/proc is not mounted", self.without("/proc", command=("agent",)).stderr)
        self.assertIn("/proc is not mounted", self.without("/proc", command=("doctor",)).stdout)
        ran = self.without("/dev/null")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("/dev/null cannot be opened", ran.stderr)

    def test_our_own_programs_run_by_their_names_with_options_of_theirs(self):
        ran = verbena("ibv_devinfo", "--help")
        self.assertEqual((ran.returncode, ran.stdout.splitlines()[0]), (0, "Usage: ibv_devinfo             print the ca attributes"))
        ran = verbena("ibv_rc_pingpong", "-P")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (1, "", "prefetch is valid only with on-demand memory region\n"))
        self.assertEqual(verbena("../programs/ibv_devinfo").returncode, 2)

    def test_our_own_programs_come_last_in_the_path(self):
        path = verbena("run", "sh", "-c", 'echo "$PATH"').stdout.strip().split(":")
        self.assertTrue(os.path.exists(os.path.join(path[-1], "ibv_devinfo")), path)

    def test_settings_without_effect_are_complained_of_once(self):
        ran = verbena("run", "true", environment={"VERBENA_SHARDS": "99", "VERBENA_LOCAL": "no"})
        self.assertIn("VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8", ran.stderr)
        self.assertIn("VERBENA_LOCAL=no has no effect", ran.stderr)
        self.assertEqual(verbena("run", "true", environment={"VERBENA_SHARDS": "8", "VERBENA_LOCAL": "off"}).stderr, "")

    def test_an_unknown_log_level_is_complained_of_once(self):
        ran = verbena("ibv_devices", environment={"VERBENA_LOG": "ERROR"})
        self.assertEqual(ran.stderr.count("VERBENA_LOG=ERROR is not one of none, error, warning, info, debug; taken as 'error'"), 1, ran.stderr)
        self.assertEqual(verbena("ibv_devices", environment={"VERBENA_LOG": "error"}).stderr, "")

    def test_a_pipe_of_the_program_ends_before_the_agent(self):
        script = '"$1" run true 2>&1 | cat; "$1" status --json'
        ran = subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", VERBENA], capture_output=True, text=True, timeout=60, check=True,
                             env={**os.environ, "VERBENA_LOG": "info"})
        self.assertIn("logs to ", ran.stdout)
        self.assertIsNotNone(json.loads(ran.stdout[ran.stdout.index("\n{"):])["agent"], ran.stdout)

    def test_rdma_is_run_by_its_name(self):
        self.assertEqual(verbena("rdma", "link").stdout, verbena("run", "rdma", "link").stdout)
        self.assertIn("Usage: rdma", verbena("rdma", "help").stdout)

    def test_libraries_are_first_in_the_path_and_not_twice(self):
        shown = verbena("run", VERBENA, "run", "sh", "-c", 'echo "$LD_LIBRARY_PATH"',
                        environment={"LD_LIBRARY_PATH": "/elsewhere"}).stdout.strip().split(":")
        self.assertTrue(os.path.exists(os.path.join(shown[0], "libibverbs.so.1")), shown)
        self.assertEqual(shown[1:], ["/elsewhere"])

    def test_shared_memory_is_for_those_who_ask_for_it(self):
        def preloaded(*options):
            return verbena("run", *options, "sh", "-c", 'echo "$LD_PRELOAD"').stdout
        self.assertNotIn("libverbena-memory.so", preloaded())
        self.assertIn("libverbena-memory.so", preloaded("--shared-memory"))
        self.assertIn("libverbena-memory.so", preloaded("--shared-memory", "--"))

    def test_the_users_preload_is_kept(self):
        shown = verbena("run", "sh", "-c", 'echo "$LD_PRELOAD"', environment={"LD_PRELOAD": "libdl.so.2"}).stdout
        self.assertTrue(shown.strip().endswith("libdl.so.2"), shown)


class Status(unittest.TestCase):
    def test_json_is_one_valid_object(self):
        ran = verbena("status", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        whole = json.loads(ran.stdout)
        self.assertEqual(set(whole), {"version", "agent", "links", "processes", "connection_management"})

    def test_links_as_json(self):
        ran = verbena("link", "show", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for link in json.loads(ran.stdout):
            self.assertTrue({"name", "netdev", "state", "mtu", "active_mtu", "gids"} <= set(link), link)

    def test_what_is_not_there_is_an_error_with_what_there_is(self):
        links = [one["name"] for one in json.loads(verbena("link", "show", "--json").stdout)]
        for words in (["link", "show", "nosuch"], ["status", "--link", "nosuch"]):
            ran = verbena(*words)
            self.assertEqual((ran.returncode, ran.stdout), (FAILED, ""))
            self.assertIn(f"no link 'nosuch'; links: {', '.join(links) or 'there are none'}", ran.stderr)

    def test_answer_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = subprocess.run([VERBENA, "status"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(ran.returncode, FAILED)
        self.assertIn("standard output", ran.stderr)


def enter_a_network_of_our_own():
    """Moves this process to a new network namespace: `verbena run` starts an agent, which would take UDP port 4791 on the
    user's network."""
    if os.environ.get("VERBENA_TEST_NETWORK"):
        return
    for unshare in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
            os.environ["VERBENA_TEST_NETWORK"] = "own"
            os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


if __name__ == "__main__":
    enter_a_network_of_our_own()
    VERBENA, SOURCES = os.path.abspath(sys.argv.pop(1)), pathlib.Path(__file__).resolve().parent.parent.parent
    unittest.main()
