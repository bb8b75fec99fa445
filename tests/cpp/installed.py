# SPDX-License-Identifier: Apache-2.0
"""For tests of the installed C++ API: an installation in a folder of the test, and a network namespace."""

import os
import shutil
import subprocess
import sys


os.environ.setdefault("CMAKE_GENERATOR", "Ninja")  # as scripts/setup installs no make


def run(*command, with_errors=False, **options):
    """Runs a command to its end. Returns its standard output, and with `with_errors` also its standard error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if with_errors else done.stdout


class Installation:
    """The headers and the files for CMake and pkg-config, below top/installed. `environment`: pkg-config finds them."""

    def __init__(self, build, top):
        self.prefix = top / "installed"
        run("cmake", "--install", build, "--component", "development", "--prefix", self.prefix)
        # The installed file has the prefix of the build, which is another folder.
        wrapper = top / "bin/pkg-config"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("pkg-config")} --define-variable=prefix={self.prefix} "$@"\n',
                           encoding="utf-8")
        wrapper.chmod(0o755)
        self.environment = os.environ | {"PKG_CONFIG_PATH": ":".join(map(str, self.prefix.glob("**/pkgconfig"))),
                                         "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}


def enter_namespace():
    """Runs this test again in a network namespace with a loopback interface, unless it is in one. Returns False without root."""
    if "VERBENA_TEST_NETWORK" in os.environ:
        return True
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    os.environ["VERBENA_TEST_NETWORK"] = "own"
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", sys.executable, *sys.argv])
