#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hosts_test.py BUILD go|java [--rounds N]: two programs in a language whose runtime uses signals itself exchange data,
through shared memory and by wire. Meanwhile they collect garbage, recover from null pointer accesses, are preempted, and unmap
registered memory. Every byte is verified."""

import argparse
import os
import pathlib
import shutil
import subprocess

from talkers import harness

SOURCES = pathlib.Path(__file__).resolve().parent / "hosts"


def run(words, **options):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{ran.stdout}{ran.stderr}")


def build_go(folder, tests):
    """Builds the program; returns the command that starts it."""
    harness.require_programs("go", "gcc")
    flags = {"CGO_CFLAGS": f"-I{SOURCES.parents[1]}", "CGO_LDFLAGS": f"-L{tests} -lends -Wl,-rpath,{tests}",
             "GOCACHE": str(folder / "go_cache"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "HOME": str(folder)}
    run(["go", "build", "-o", folder / "go_host", SOURCES / "host.go"], env={**os.environ, **flags})
    return [folder / "go_host"]


def build_java(folder, tests):
    harness.require_programs("java", "javac", "gcc")
    headers = pathlib.Path(shutil.which("javac")).resolve().parents[1] / "include"
    if not (headers / "jni.h").exists():
        harness.skip("no jni.h beside javac")
    run(["javac", "-d", folder, SOURCES / "Host.java"])
    run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", f"-I{headers}", f"-I{headers}/linux", f"-I{SOURCES.parents[1]}",
         "-o", folder / "libhost_jni.so", SOURCES / "host_jni.c", f"-L{tests}", "-lends", f"-Wl,-rpath,{tests}"])
    # The defaults are too much memory for such small programs, and two run at once.
    return ["java", "-Xmx128m", "-Xss512k", "-XX:-UsePerfData", f"-XX:ErrorFile=/dev/stdout", f"-Djava.library.path={folder}",
            "-cp", folder, "Host"]


BUILDERS = {"go": build_go, "java": build_java}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("language", choices=BUILDERS)
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    tests = pathlib.Path(options.build).resolve() / "tests"
    folder = tests / f"{options.language}_host.built"
    folder.mkdir(exist_ok=True)
    command = BUILDERS[options.language](folder, tests)
    judge = harness.Judge()
    for route in harness.ROUTES:
        with harness.Hosts(options.build, route) as hosts:
            host = hosts.one()
            port = hosts.port()
            both = [host.verbena("run", "sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command, side, host.ipv4, port, options.rounds)
                    for side in ("server", "client")]
            harness.poll_until(lambda: any(one.wait(0.1) not in (0, None) for one in both) or not any(one.running() for one in both), 50)
            statuses = [one.wait(0) for one in both]
            for one in both:
                print(one.output, end="")
            judge.say(f"two hosts in {options.language}, route {route}", None if statuses == [0, 0] else f"they end with {statuses}")
    judge.exit()


if __name__ == "__main__":
    main()
