#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual_test.py VERBENA AGENT SOURCES [TEST...]: each command has a well-formed man page that documents each of its options,
and shell completion offers everything that exists."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import unittest

VERBENA = AGENT = SOURCES = None


def help_of(*words):
    return subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout


def listed(heading, text):
    """The first word of each line below a heading in a help text."""
    block = re.search(rf"^{heading}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return [word.rstrip(",") for word in re.findall(r"^  (\S+)", block.group(1), re.MULTILINE)] if block else []


def options(*words):
    return {option for entry in listed("Options", help_of(*words)) for option in entry.split(",")}


def commands(*words):
    return listed("Subcommands", help_of(VERBENA, *words))


def programs():
    """Verbena's versions of rdma-core's programs, which `verbena NAME` runs."""
    return listed("Programs", help_of(VERBENA))


def options_of_program(name):
    """The short and long options in the usage text."""
    text = subprocess.run([VERBENA, name, "--help"], capture_output=True, text=True, timeout=30, check=False).stdout
    return {word for line in re.findall(r"^ {2,6}(--?\w.*)", text, re.MULTILINE) for word in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", line.split("  ")[0])}


def page(name):
    text = (SOURCES / "docs" / "man" / name).read_text(encoding="utf-8")
    return text.replace("\\-", "-").replace("\\", "")


class ManPages(unittest.TestCase):
    def pages(self):
        return sorted((SOURCES / "docs" / "man").glob("*.[178]"))

    def test_every_command_has_one_with_its_options_and_subcommands(self):
        found = commands()
        self.assertGreater(len(found), 7)
        for command in found:
            text = page(f"verbena-{command}.1")
            wanted = options(VERBENA, command)
            for word in commands(command) if command != "help" else ():
                wanted |= options(VERBENA, command, word)
                self.assertIn(word, text)
            for option in wanted:
                self.assertRegex(text, rf"(?m)^\.(B|BR|BI)\b.*{option}\b", f"verbena-{command}.1 lacks {option}")

    def test_the_agents_program_has_one_with_its_options(self):
        for option in options(AGENT):
            self.assertRegex(page("verbena-agent.1"), rf"(?m)^\.(B|BR|BI)\b.*{option}\b", option)

    def test_every_program_of_ours_has_one_with_its_options(self):
        self.assertIn("ibv_rc_pingpong", programs())
        for name in programs():
            wanted = options_of_program(name)
            self.assertIn("--json", wanted, name)
            for option in wanted:
                self.assertRegex(page(f"verbena-{name}.1"), rf"(?m)^\.(B|BR|BI)\b.*(?<![\w-]){option}\b", f"verbena-{name}.1 lacks {option}")

    def test_programs_of_ours_are_those_that_are_built(self):
        folder = pathlib.Path(VERBENA).parent.parent / "programs"
        self.assertEqual(sorted(programs()), sorted(file.name for file in folder.iterdir() if os.access(file, os.X_OK)))

    def test_the_command_and_the_overview_name_every_page(self):
        for command in commands() + programs():
            self.assertIn(f"verbena-{command} (1)", page("verbena.1"))
            self.assertIn(f"verbena-{command} (1)", page("verbena.7"))

    def test_synopses_have_the_usage(self):
        for command in commands() + programs():
            synopsis = page(f"verbena-{command}.1").split(".SH SYNOPSIS")[1].split(".SH")[0]
            self.assertIn(f"verbena {command}", synopsis)

    def test_they_are_well_formed(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not there")
        for file in self.pages():
            ran = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", file], capture_output=True, text=True, check=False)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), file)

    def test_they_name_no_page_that_is_not_there(self):
        names = {file.name for file in self.pages()}
        for file in self.pages():
            for name, section in re.findall(r"\b(verbena[\w-]*) \((\d)\)", page(file.name)):
                self.assertIn(f"{name}.{section}", names, file)



def environment():
    """The environment of a shell whose completion asks the verbena under test, which is that of PATH."""
    return {**os.environ, "PATH": f"{pathlib.Path(VERBENA).resolve().parent}:{os.environ['PATH']}"}


# Each of these names runs a program if a shell expands it.
HOSTILE_NAMES = ["$(touch RAN)", "`touch RAN`", "a blank", "line\nfeed", "quotes'\"", "back\\slash"]


class Terminal:
    """An interactive shell in a pseudo-terminal, with a folder as its working directory."""

    def __init__(self, folder):
        self.process, self.end = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**environment(), "PS1": "", "TERM": "dumb", "INPUTRC": "/dev/null"})
        # Control-T prints the current command line.
        self.type("bind 'set enable-bracketed-paste off'; bind -x '\"\\C-t\": printf \"<<%q>>\" \"$READLINE_LINE\"'\n"
                  f"source {SOURCES}/packaging/completion/verbena.bash\n"
                  "printf '%s\\n' rea''dy\n")
        self.read(r"ready")

    def type(self, text):
        os.write(self.end, text.encode())

    def read(self, pattern):
        said = ""
        while not (found := re.search(pattern, said)):
            if not select.select([self.end], [], [], 60)[0]:
                raise TimeoutError(said)
            said += os.read(self.end, 4096).decode()
        return found

    def complete(self, line):
        """The words of a line after Tab, as the shell would read them after Enter."""
        self.type(f"{line}\t\x14")
        typed = self.read(r"<<(.*)>>").group(1)
        self.type("\x15")
        ran = subprocess.run(["bash", "-c", f"line={typed}; eval \"set -- $line\"; printf '%s\\0' \"$@\""], capture_output=True, text=True, check=True)
        return ran.stdout.split("\0")[:-1]

    def close(self):
        os.close(self.end)
        os.waitpid(self.process, 0)


class BashAtATerminal(unittest.TestCase):
    def test_names_of_files_come_quoted(self):
        for name in HOSTILE_NAMES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, name).touch()
                terminal = Terminal(folder)
                self.addCleanup(terminal.close)
                for beginning in ("'" + name[0], "\\" + name[0]):
                    self.assertEqual(terminal.complete(f"{VERBENA} capture {beginning}")[1:], ["capture", name])
                self.assertEqual(os.listdir(folder), [name])


class BashCompletion(unittest.TestCase):
    def complete(self, *words, folder="/", program=None):
        """The completions that a shell offers for the last word."""
        script = """
            . "$1"; shift
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _verbena
            if ((${#COMPREPLY[@]})); then printf '%s\\0' "${COMPREPLY[@]}"; fi
        """
        file = SOURCES / "packaging" / "completion" / "verbena.bash"
        ran = subprocess.run(["bash", "--norc", "-c", script, "bash", file, program or VERBENA, *words], capture_output=True, text=True,
                             timeout=30, check=True, cwd=folder, env=environment())
        self.assertEqual(ran.stderr, "")
        return set(ran.stdout.split("\0")[:-1])

    def test_commands(self):
        self.assertEqual(self.complete(""), set(commands()) | set(programs()) | options(VERBENA))
        self.assertEqual(self.complete("st"), {"status"})
        self.assertTrue({"show", "add", "del", "set"} <= self.complete("link", ""))
        self.assertEqual(self.complete("system", "o"), {"on", "off"})

    def test_options_of_each_command(self):
        for command in commands():
            self.assertEqual(self.complete(command, "--"), {one for one in options(VERBENA, command) if one.startswith("--")})

    def test_options_of_programs_of_ours(self):
        for name in programs():
            self.assertEqual(self.complete(name, "--"), {one for one in options_of_program(name) if one.startswith("--")})

    def test_programs_to_run(self):
        self.assertIn("cat", self.complete("run", "ca"))
        self.assertIn("cat", self.complete("run", "--shared-memory", "ca"))

    def test_files_to_write(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "traffic.pcapng").touch()
            self.assertEqual(self.complete("capture", "tra", folder=folder), {"traffic.pcapng"})
            self.assertEqual(self.complete("capture", "--seconds", "", folder=folder), set())

    def test_names_of_files_are_not_expanded(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in HOSTILE_NAMES:
                pathlib.Path(folder, name).touch()
            self.assertTrue(set(HOSTILE_NAMES) <= self.complete("capture", "", folder=folder))
            for command in ("run", "doctor"):
                self.assertTrue(set(HOSTILE_NAMES) <= self.complete(command, "", folder=folder))
            self.assertEqual(self.complete("capture", "'$(", folder=folder), {HOSTILE_NAMES[0]})
            self.assertEqual(self.complete("capture", r"\$\(", folder=folder), {HOSTILE_NAMES[0]})
            self.assertEqual(self.complete("capture", '"a bl', folder=folder), {"a blank"})
            self.assertEqual(sorted(os.listdir(folder)), sorted(HOSTILE_NAMES))

    def test_a_program_that_is_named_by_a_path_is_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "verbena")
            program.write_text("#!/bin/sh\n: >ran\necho Options:\necho '  --mine  an option'\n", encoding="utf-8")
            program.chmod(0o755)
            offered = self.complete("status", "--", folder=folder, program="./verbena")
            self.assertEqual(offered, {one for one in options(VERBENA, "status") if one.startswith("--")})
            self.assertEqual(os.listdir(folder), ["verbena"])

    def test_network_devices_for_links(self):
        devices = set(os.listdir("/sys/class/net"))
        self.assertEqual(self.complete("link", "add", "rxe0", ""), devices | {"type"})
        self.assertEqual(self.complete("link", "add", "rxe0", "type", ""), {"rxe"})
        self.assertEqual(self.complete("link", "add", "rxe0", "type", "rxe", ""), {"netdev"})
        self.assertEqual(self.complete("link", "add", "rxe0", "type", "rxe", "netdev", ""), devices)
        self.assertEqual(self.complete("link", "set", "rxe0", ""), {"peers"})

    def test_names_to_explain(self):
        self.assertEqual(self.complete("explain", "IBV_WC_RET"), {"IBV_WC_RETRY_EXC_ERR"})
        self.assertEqual(self.complete("explain", "RETR"), {"RETRY_EXC_ERR"})
        self.assertEqual(self.complete("explain", "CN"), {"CNP"})

    def test_values_of_options(self):
        self.assertEqual(self.complete("status", "--state", "RT"), {"RTR", "RTS"})
        self.assertEqual(self.complete("top", "--sort", ""), {"bytes", "packets", "retransmissions", "rnrs", "waiting"})
        self.assertEqual(self.complete("top", "--by", ""), {"process", "qp", "link"})

    def test_commands_to_have_explained(self):
        self.assertTrue({"status", "rping"} <= self.complete("help", ""))
        self.assertEqual(self.complete("help", "link", "s"), {"show", "set"})


class ZshCompletion(unittest.TestCase):
    def test_it_is_well_formed_and_lists_commands(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not there")
        file = SOURCES / "packaging" / "completion" / "_verbena"
        script = """
            functions[load]="$(sed '$d' "$1")"; load
            service=$2; _verbena_listed Subcommands; _verbena_listed Options capture
        """
        ran = subprocess.run(["zsh", "-f", "-c", script, "zsh", file, VERBENA], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        names = {line.split(":")[0] for line in ran.stdout.splitlines()}
        self.assertEqual(names, set(commands()) | options(VERBENA, "capture"))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    VERBENA, AGENT, SOURCES = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
    unittest.main()
