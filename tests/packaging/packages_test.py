#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packages_test.py ROOT: every package in scripts/packages is available for this system. Reads only apt's lists; skipped if
there are none."""

import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77


def wanted(packages):
    names = set()
    for line in packages.read_text(encoding="utf-8").splitlines():
        if ":" in line and not line.startswith("#"):
            names.update(line.split(":", 1)[1].split())
    return sorted(names)


def candidates(names):
    """Package -> the version that apt would install. Unknown packages are left out."""
    told = subprocess.run(["apt-cache", "policy", *names], capture_output=True, text=True, check=True).stdout
    found, name = {}, None
    for line in told.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:") and "(none)" not in line:
            found[name] = line.split(":", 1)[1].strip()
    return found


def main(root):
    names = wanted(pathlib.Path(root) / "scripts/packages")
    assert names, "scripts/packages names no package"
    if shutil.which("apt-cache") is None:
        print("skipped: no apt-cache, so this is no Debian")
        return SKIPPED
    if not subprocess.run(["apt-get", "indextargets", "Created-By: Packages"], capture_output=True, check=True).stdout:
        print("skipped: apt knows no source of packages")
        return SKIPPED
    found = candidates(names)
    for name in names:
        print(f"{name} {found.get(name, 'MISSING')}")
    if not any(name in found for name in ("libisal-dev", "libmnl-dev")):
        print("skipped: apt has no lists of packages; 'apt-get update' gets them")
        return SKIPPED
    missing = [name for name in names if name not in found]
    if missing:
        print(f"{len(missing)} packages of scripts/packages do not exist here: {' '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
