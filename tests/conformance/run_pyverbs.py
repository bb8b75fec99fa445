#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's own tests (Debian's python3-pyverbs; the tests come with rdma-core's documentation), unmodified, over
Verbena, as an ordinary user; those that use raw packets as root, which they require. None may fail. docs/conformance.md must
list exactly the skipped tests, with reasons. (run_pyverbs_dma_bufs.py runs the tests that Debian's pyverbs cannot run.)

    run_pyverbs.py --build build/release --gid ipv4
    run_pyverbs.py --build build/release --gid ipv6 --module test_qp --module test_mr
"""

import contextlib
import fcntl
import gzip
import os
import pathlib
import re
import shutil
import sys
import tempfile

import harness

MODULES = (
    "test_addr",
    "test_atomic",
    "test_cq",
    "test_cq_events",
    "test_cqex",
    "test_device",
    "test_flow",
    "test_fork",
    "test_mr",
    "test_odp",
    "test_parent_domain",
    "test_pd",
    "test_qp",
    "test_qpex",
    "test_rdmacm",
    "test_relaxed_ordering",
    "test_rss_traffic",
    "test_shared_pd",
    "test_tag_matching",
)
# Modules that were added after rdma-core 44.
NEWER_MODULES = ("test_buf", "test_dmah", "test_phc_timestamp", "test_srq")
# Tests that skip themselves for an ordinary user, as name patterns by module.
AS_ROOT = {"test_flow": ("*",), "test_rss_traffic": ("*",), "test_qp": ("*raw*", "*privileged*")}
DEBIANS_TESTS = "/usr/share/doc/rdma-core/tests"
DEBIANS_PYTHON = "/usr/bin/python3"  # the Python version that Debian's pyverbs is built for
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
HUGE_PAGES_WANTED = 16
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "conformance.md"

OUTCOME = re.compile(r"\((tests\.(test_\w+)\.\w+\.\w+)\)(?:\n[^\n]*?)?? \.\.\. "
                     r"(?:[^\n]*\n)??(?:.*?)(ok|FAIL|ERROR|expected failure|unexpected success|skipped (?:'(.*?)'|\"(.*?)\"))$",
                     re.MULTILINE)


def unpack_tests(folder):
    """Copies the tests, decompressing them: Debian compresses the larger files of its documentation."""
    source = pathlib.Path(os.environ.get("VERBENA_PYVERBS_TESTS", DEBIANS_TESTS))
    if not (source / "run_tests.py").exists():
        harness.skip(f"rdma-core's tests are not in {source}; a system that leaves documentation out of packages lacks "
                     "them, and VERBENA_PYVERBS_TESTS may name another folder")
    for path in source.iterdir():
        if path.suffix == ".gz":
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


@contextlib.contextmanager
def huge_pages():
    """Reserves a few huge pages, without which some tests skip themselves. If several runs overlap, the last one restores the
    old number."""
    with open("/run/lock/verbena-huge-pages", "a+", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        before = int(HUGE_PAGES.read_text()) if HUGE_PAGES.exists() else None
        if before is not None and before < HUGE_PAGES_WANTED:
            with contextlib.suppress(OSError):  # a container's root may not set it
                HUGE_PAGES.write_text(str(HUGE_PAGES_WANTED))
                lock.truncate(0)
                lock.write(str(before))
                lock.flush()
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.seek(0)
                if found := lock.read():
                    HUGE_PAGES.write_text(found)
                    lock.truncate(0)


def documented_skips(version):
    """The tests in the page's table for this release, or else for the latest earlier release."""
    sections = re.split(r"^## rdma-core (\d+).*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tables = {int(number): text for number, text in zip(sections[1::2], sections[2::2])}
    table = tables[max((number for number in tables if number <= version), default=min(tables))]
    return set(re.findall(r"^\| `(tests\.[\w.]+)` \|[^|\n]*[^|\s][^|\n]*\|", table.split("\n## ")[0], re.MULTILINE))


def outcomes(output):
    """{test: (outcome, reason for skipping)}."""
    return {match[0]: (match[2].split(" ")[0], match[3] or match[4]) for match in OUTCOME.findall(output)}


def python_that_forks():
    """The words before run_tests.py, which make multiprocessing fork. Since Python 3.14 it pickles the objects for a new
    process, and no release of pyverbs can pickle its objects."""
    method = harness.sh(DEBIANS_PYTHON, "-c", "import multiprocessing; print(multiprocessing.get_start_method())").strip()
    if method == "fork":
        return (DEBIANS_PYTHON,)
    return (DEBIANS_PYTHON, "-c", "import multiprocessing, os, runpy, sys; multiprocessing.set_start_method('fork'); "
            "del sys.argv[0]; sys.path[0] = os.path.dirname(sys.argv[0]); runpy.run_path(sys.argv[0], run_name='__main__')")


def run_tests(tests, host, gid, user, patterns, python=None):
    """Runs tests: (outcomes, complaints, output)."""
    python = python or python_that_forks()
    index = host.gid_index(getattr(host, gid), user=user)
    status, output = host.run(
        *python, f"{tests}/run_tests.py", "--dev", f"rxe_{host.netdev}", "--gid", index, "-v",
        *(word for pattern in patterns for word in ("-k", pattern)), seconds=300, user=user,
        environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"})  # warnings would mix with outcomes
    results, complaints = outcomes(output), []
    total = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    ran = int(total.group(1)) if total else -1
    if len(results) != ran:
        complaints.append(f"{ran} tests ran and {len(results)} outcomes were read")
    if status != 0:
        complaints.append(f"exit status {status}")
    return results, complaints, output


def judge(results, modules, version):
    """Complaints, one line each."""
    complaints = []
    for module in modules:
        if not any(test.startswith(f"tests.{module}.") for test in results):
            complaints.append(f"no test of {module} ran")
    skipped = {test for test, (outcome, _) in results.items() if outcome == "skipped"}
    documented = {test for test in documented_skips(version) if test.split(".")[1] in modules}
    for test, (outcome, _) in sorted(results.items()):
        if outcome not in ("ok", "skipped"):
            complaints.append(f"{test}: {outcome}")
    complaints += [f"{test}: skipped and not in {PAGE.name}" for test in sorted(skipped - documented)]
    complaints += [f"{test}: in {PAGE.name} and not skipped" for test in sorted(documented - skipped)]
    return complaints


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--gid", choices=("ipv4", "ipv6"), default="ipv4")
    parser.add_argument("--module", action="append", help=f"default: {' '.join(MODULES)}")
    harness.add_route_option(parser)
    parser.add_argument("--verbose", action="store_true", help="print what the tests print")
    options = parser.parse_args()
    harness.require_root()
    results, complaints, output = {}, [], ""
    with tempfile.TemporaryDirectory(prefix="verbena-pyverbs-") as temporary, harness.Hosts(options.build, options.route) as hosts, \
            huge_pages():
        unpack_tests(pathlib.Path(temporary))
        newer = [module for module in NEWER_MODULES if (pathlib.Path(temporary) / f"{module}.py").exists()]
        modules = tuple(options.module or (*MODULES, *newer))
        plain = [module for module in modules if AS_ROOT.get(module) != ("*",)]
        as_root = [module for module in modules if module in AS_ROOT]
        # One host each, because the first user on a host starts its agent.
        ordinary, roots = hosts.two()
        for host, user, patterns in ((ordinary, None, [f"tests.{module}.*" for module in plain]),
                                     (roots, [], [f"tests.{module}.*.{names}" for module in as_root for names in AS_ROOT[module]])):
            if patterns:
                found, complained, printed = run_tests(temporary, host, options.gid, user, patterns)
                results.update(found)
                complaints += complained
                output += printed
    report(results, complaints + judge(results, modules, harness.rdma_core_release("python3-pyverbs")), output, options.verbose)


def report(results, complaints, output, verbose):
    """Prints the results and ends the program."""
    if complaints or verbose:
        print(output)
    for test, (outcome, reason) in sorted(results.items()):
        if outcome == "skipped":
            print(f"skipped: {test}: {reason}")
    for complaint in complaints:
        print(f"=== {complaint}")
    good = sum(outcome == "ok" for outcome, _ in results.values())
    print(f"\n{len(results)} tests, {good} passed, {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
