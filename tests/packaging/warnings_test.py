#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""warnings_test.py ROOT: warnings are errors in the developers' presets only, and never in users' builds: a newer compiler has
more warnings, which users cannot fix. Reads the compile commands that CMake writes for a preset."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

DEVELOPERS = ("debug",)
USERS = ("release",)


def commands(root, preset, environment):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cmake", "--preset", preset, "-S", root, "-B", folder, "-DVERBENA_TESTS=OFF", "-DVERBENA_BENCH=OFF",
                        "--log-level=WARNING"], cwd=root, env=environment, stdout=subprocess.DEVNULL, check=True)
        return [entry["command"] for entry in json.loads(pathlib.Path(folder, "compile_commands.json").read_text())]


def presets_with(root, wanted):
    """The non-hidden presets that set VERBENA_WERROR to `wanted`; None: that do not set it."""
    presets = json.loads(pathlib.Path(root, "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    return {preset["name"] for preset in presets
            if not preset.get("hidden") and preset.get("cacheVariables", {}).get("VERBENA_WERROR") == wanted}


def main(root):
    plain = {name: value for name, value in os.environ.items() if name != "VERBENA_WERROR"}
    assert presets_with(root, None) == set(USERS), presets_with(root, None)
    for preset in USERS:
        strict = [command for command in commands(root, preset, plain) if "-Werror" in command.split()]
        assert not strict, f"preset {preset}: warnings are errors: {strict[0]}"
        # CI builds this preset with -Werror too: some warnings appear only with its optimization.
        assert all("-Werror" in command.split() for command in commands(root, preset, {**plain, "VERBENA_WERROR": "ON"}))
    for preset in DEVELOPERS:
        lax = [command for command in commands(root, preset, plain) if "-Werror" not in command.split()]
        assert not lax, f"preset {preset}: warnings are no errors: {lax[0]}"
    print("warnings are errors for developers, and for nobody else")


if __name__ == "__main__":
    main(sys.argv[1])
