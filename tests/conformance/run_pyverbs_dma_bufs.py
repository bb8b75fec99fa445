#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs pyverbs' tests that register dma-bufs; each must pass. Debian's pyverbs skips them on every machine: it is built
without an allocator for dma-bufs, and could not register an allocated one (docs/conformance.md). So pyverbs is changed here:
an allocator is preloaded, and pyverbs_with_dma_bufs.py repairs the registration. The tests are unmodified.

    run_pyverbs_dma_bufs.py --build build/release --gid ipv4
"""

import pathlib
import shutil
import tempfile

import harness
import run_pyverbs

TESTS = ("tests.test_mr.DmaBufMRTest.", "tests.test_mr.DmaBufTestCase.")
ALLOCATOR = "tests/libdma_buf_allocator.so"  # below the build folder
LAUNCHER = pathlib.Path(__file__).with_name("pyverbs_with_dma_bufs.py")
# Preloads the allocator after the libraries that `verbena run` preloads, for this program only.
PRELOADING = ("sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"')


def python_with_dma_bufs(folder, build):
    """The words before run_tests.py. Copies the files that they name to where an ordinary user can read them."""
    allocator, launcher = (folder / shutil.copy(source, folder) for source in (pathlib.Path(build) / ALLOCATOR, LAUNCHER))
    for path in (allocator, launcher):
        path.chmod(0o755)
    return [*PRELOADING, allocator, run_pyverbs.DEBIANS_PYTHON, launcher]


def judge(results):
    """Complaints, one line each. The tests that are skipped otherwise must run."""
    complaints = [f"{test}: {outcome}" for test, (outcome, _) in sorted(results.items()) if outcome != "ok"]
    wanted = {test for test in run_pyverbs.documented_skips(harness.rdma_core_release("python3-pyverbs")) if test.startswith(TESTS)}
    complaints += [f"{test}: did not run" for test in sorted(wanted - set(results))]
    complaints += [f"{test}: not in {run_pyverbs.PAGE.name}" for test in sorted(set(results) - wanted)]
    return complaints if results else ["no test ran"]


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--gid", choices=("ipv4", "ipv6"), default="ipv4")
    parser.add_argument("--verbose", action="store_true", help="print what the tests print")
    options = parser.parse_args()
    harness.require_root()

    with tempfile.TemporaryDirectory(prefix="verbena-pyverbs-") as temporary, harness.Hosts(options.build) as hosts:
        run_pyverbs.unpack_tests(pathlib.Path(temporary))
        python = python_with_dma_bufs(pathlib.Path(temporary), options.build)
        results, complaints, output = run_pyverbs.run_tests(
            temporary, hosts.two()[0], options.gid, None, [f"{test}*" for test in TESTS], python)
    run_pyverbs.report(results, complaints + judge(results), output, options.verbose)


if __name__ == "__main__":
    main()
