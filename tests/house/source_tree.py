# SPDX-License-Identifier: Apache-2.0
"""For the house rules: lists the files of the project, and reports broken rules."""

import pathlib
import shutil
import subprocess
import sys

CXX_SUFFIXES = {".h", ".cc", ".c"}
COMMENTED_SUFFIXES = CXX_SUFFIXES | {".py", ".sh", ".cmake", ".map"}
COMMENTED_NAMES = {"CMakeLists.txt", "packages"}


def files(root):
    """Every file that git tracks or does not ignore; without git, every file outside build folders."""
    root = pathlib.Path(root)
    listed = b""
    if shutil.which("git"):
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"],
            capture_output=True, check=False).stdout
    if listed:
        names = listed.decode().rstrip("\0").split("\0")
        return sorted(root / name for name in names if (root / name).is_file())
    return sorted(path for path in root.rglob("*")
                  if path.is_file() and not any(part == ".git" or part.startswith("build")
                                                for part in path.relative_to(root).parts))


def sources(root):
    """C and C++ files."""
    return [path for path in files(root) if path.suffix in CXX_SUFFIXES]


def commented(root):
    """Files that must carry the licence, since their first lines can be comments."""
    return [path for path in files(root)
            if path.suffix in COMMENTED_SUFFIXES or path.name in COMMENTED_NAMES or (not path.suffix and is_script(path))]


def is_script(path):
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def report(broken, checked, rule):
    """Prints the breaches and exits; with status 0 only if something was checked and nothing is broken."""
    for line in broken:
        print(line)
    if not checked:
        print(f"{rule}: nothing to check, so nothing is shown")
        sys.exit(1)
    print(f"{rule}: {checked} files, {len(broken)} broken")
    sys.exit(1 if broken else 0)
