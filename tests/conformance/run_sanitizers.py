#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs built with a sanitizer over Verbena: they must start, a ping-pong must run without a report, and the sanitizer
must still find a deliberate bug. Programs under Valgrind and qemu-user must run too.

    run_sanitizers.py --build build/release
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import harness

SOURCE = pathlib.Path(__file__).resolve().parent / "sanitized_pingpong.c"
SUPPRESSIONS = SOURCE.parent.parent.parent / "packaging" / "tsan.supp"
SECONDS = 60
# For each value of -fsanitize=: the deliberate bug, and words of the expected report.
SANITIZERS = {
    "address": ("heap-overflow", "AddressSanitizer: heap-buffer-overflow"),
    "address,undefined": ("heap-overflow", "AddressSanitizer: heap-buffer-overflow"),
    "thread": ("race", "ThreadSanitizer: data race"),
    "undefined": ("shift", "runtime error: shift exponent 33"),
    "leak": (None, None),
}
REPORT = re.compile(r"(ERROR|WARNING|SUMMARY): \w+Sanitizer|runtime error")
COMPILERS = {"gcc": [], "clang": [], "clang, shared runtime": ["-shared-libsan"]}
CASES = [("gcc", sanitizer) for sanitizer in SANITIZERS] + [("clang", "address"), ("clang", "thread"), ("clang, shared runtime", "address")]


def compile_program(folder, name, sanitizer):
    """The compiled program; None if this compiler or its runtime is not installed."""
    compiler, *options = [name.split(",")[0], *COMPILERS[name]]
    program = folder / re.sub(r"\W+", "_", f"{name}_{sanitizer}")
    if shutil.which(compiler) is None:
        return None
    if options:
        runtimes = subprocess.run([compiler, "-print-file-name=libclang_rt.asan-x86_64.so"], capture_output=True, text=True,
                                  check=False).stdout.strip()
        options.append(f"-Wl,-rpath,{os.path.dirname(runtimes)}")
    ran = subprocess.run([compiler, "-O1", "-g", f"-fsanitize={sanitizer}", *options, "-o", program, SOURCE, "-libverbs", "-pthread"],
                         capture_output=True, text=True, check=False)
    # The runtime may be installed but not work on this kernel, like Clang 14's ThreadSanitizer.
    if ran.returncode != 0:
        return None
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n", encoding="ascii")
    harness.sh(compiler, f"-fsanitize={sanitizer}", *options, "-o", f"{program}-empty", empty)
    return program if subprocess.run([f"{program}-empty"], capture_output=True, check=False).returncode == 0 else None


def what_is_wrong(result, *, report=None, status=0):
    """None if the program ended with this status and printed the expected report, else a complaint."""
    code, output = result
    if "done" not in output:
        return output or f"exit status {code}"
    if report is None:
        return None if code == status and not REPORT.search(output) else f"exit status {code}\n{output}"
    return None if report in output else f"no '{report}' in\n{output}"


def judge(judge_of, host, folder, name, sanitizer):
    program = compile_program(folder, name, sanitizer)
    what = f"{name} -fsanitize={sanitizer}"
    if program is None:
        print(f"{what:70} not here", flush=True)
        return
    fault, report = SANITIZERS[sanitizer]
    suppressions = {"TSAN_OPTIONS": f"suppressions={folder / SUPPRESSIONS.name}"}
    judge_of.say(what, what_is_wrong(host.run(program, seconds=SECONDS, environment=suppressions)))
    judge_of.say(f"{what}, started by a script",
                 what_is_wrong(host.run("sh", "-c", f"{program}; exit $?", seconds=SECONDS, environment=suppressions)))
    if fault:
        judge_of.say(f"{what}, {fault}",
                     what_is_wrong(host.run(program, fault, seconds=SECONDS, environment=suppressions), report=report))
    judge_of.say(f"{what}, --shared-memory", what_is_wrong(
        host.finish(host.verbena("run", "--shared-memory", program, environment=suppressions), SECONDS)))
    if fault and sanitizer != "undefined":
        status, output = host.command("doctor", program, seconds=SECONDS)
        judge_of.say(f"{what}, verbena doctor", None if status == 0 and report.split(":")[0] in output else output)


def judge_preloads(judge_of, host, folder):
    """Other libraries in LD_PRELOAD, and child processes."""
    program = compile_program(folder, "gcc", "address")
    if program is None:
        return
    for what, options, environment in (
            ("a preload of the user's", [], {"LD_PRELOAD": "librt.so.1 libdl.so.2"}),
            ("its runtime preloaded by the user", [], {"LD_PRELOAD": "libasan.so.8 librt.so.1"}),
            ("options of the user's", [], {"ASAN_OPTIONS": "detect_leaks=1:halt_on_error=1"})):
        ran = host.finish(host.verbena("run", *options, program, environment=environment), SECONDS)
        judge_of.say(f"AddressSanitizer and {what}", what_is_wrong(ran))
    ran = host.run(program, "heap-overflow", environment={"LD_PRELOAD": "libasan.so.8 librt.so.1"})
    judge_of.say("AddressSanitizer and its runtime preloaded, heap-overflow",
                 what_is_wrong(ran, report="AddressSanitizer: heap-buffer-overflow"))
    status, output = host.run("sh", "-c", 'echo "$LD_PRELOAD"', environment={"LD_PRELOAD": "libasan.so.8 librt.so.1 libdl.so.2"})
    order = [pathlib.Path(one).name for one in output.strip().split(":")]
    judge_of.say("LD_PRELOAD: the runtime, ours, the others in their order",
                 None if status == 0 and order == ["libasan.so.8", "libverbena-sys.so", "librt.so.1", "libdl.so.2"] else output)
    child = folder / "child.c"
    child.write_text('#include <stdlib.h>\nint main(void) { return system("python3 -c 1") != 0; }\n', encoding="ascii")
    for sanitizer in ("address", "thread"):
        harness.sh("gcc", f"-fsanitize={sanitizer}", "-o", folder / "child", child)
        status, output = host.run(folder / "child", seconds=SECONDS)
        judge_of.say(f"a child that is not built with the {sanitizer} sanitizer", None if (status, output) == (0, "") else output or status)


def judge_emulators(judge_of, host, folder):
    """Valgrind, which warns of each system call that it does not know; and qemu-user, which turns clone() into fork()."""
    if shutil.which("valgrind"):
        program = folder / "plain"
        harness.sh("gcc", "-O1", "-g", "-o", program, SOURCE, "-libverbs", "-pthread")
        status, output = host.run("valgrind", "-q", "--error-exitcode=9", "--trace-children=no", program, seconds=SECONDS)
        lines = output.count("unhandled")
        judge_of.say("Valgrind: no error, and one line for each process",
                     None if (status, "done" in output) == (0, True) and lines <= 2 else f"{lines} lines\n{output[-3000:]}")
    emulator = f"qemu-{os.uname().machine}-static"
    if shutil.which(emulator):
        host.end_agents()
        libraries = harness.sh(host.hosts.build.program, "run", "sh", "-c", "echo $LD_LIBRARY_PATH").strip().split(":")[0]
        devices = shutil.which("ibv_devinfo")
        status, output = host.finish(host.start([emulator, devices], environment={"LD_LIBRARY_PATH": libraries}), SECONDS)
        judge_of.say("qemu-user: an agent is started", None if status == 0 and "rxe_eth0" in output else output)
        # As in an emulated container: the programs that it starts are emulated too.
        agent = folder / "agent"
        agent.write_text(f'#!/bin/sh\nexec {emulator} {host.hosts.build.program.parent}/verbena-agent "$@"\n', encoding="ascii")
        agent.chmod(0o755)
        host.end_agents()
        status, output = host.finish(host.start([emulator, devices], environment={"LD_LIBRARY_PATH": libraries, "VERBENA_AGENT": str(agent)}),
                                     SECONDS)
        judge_of.say("qemu-user: an agent under it serves", None if status == 0 and "rxe_eth0" in output else output)


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "gcc")
    judge_of = harness.Judge()
    with harness.Hosts(options.build) as hosts, tempfile.TemporaryDirectory(prefix="verbena-sanitizers-") as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o755)
        shutil.copy(SUPPRESSIONS, folder)
        host, _ = hosts.two()
        for compiler, sanitizer in CASES:
            judge(judge_of, host, folder, compiler, sanitizer)
        judge_preloads(judge_of, host, folder)
        judge_emulators(judge_of, host, folder)
    judge_of.exit()


if __name__ == "__main__":
    sys.exit(main())
