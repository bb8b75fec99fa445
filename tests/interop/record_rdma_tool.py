#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""record_rdma_tool.py FILE: runs iproute2's `rdma` on the Linux kernel's rxe in the virtual machine, with the command lines of
tests/commands/rdma_cases.py. Records exit status, standard output and standard error of each as JSON. The tests compare our
`rdma` with the file (tests/commands/rdma_golden.json)."""

import glob
import json
import pathlib
import shutil
import sys

import kernel_vm
from kernel_vm import harness

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "commands"))
import rdma_cases  # noqa: E402

# Runs in the machine: executes the commands that it reads, so that a few hundred commands take one exchange.
RUNNER = """
import json, shlex, subprocess, sys
holder = subprocess.Popen([sys.executable, "/host/holder.py", "rxe0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
held = json.loads(holder.stdout.readline())
listener = subprocess.Popen(["ucmatose", "-p", "7471"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.run("for i in $(seq 100); do rdma resource show cm_id | grep -q LISTEN && break; sleep 0.1; done; ip netns add other", shell=True)
cases = json.load(open("/host/cases.json"))
names = {"dev": "rxe0", "netdev": "eth0", "qpn": str(held["qp"][0]["lqpn"]), "pid": str(held["pid"])}
def run(words, text=None):
    ran = subprocess.run(["rdma", *words], input=text or "", capture_output=True, text=True, timeout=60)
    return {"status": ran.returncode, "stdout": ran.stdout, "stderr": ran.stderr}
def record(lines):
    return [{"words": line, **run(line.format(**names).split())} for line in lines]
answers = {"held": held, "listener": listener.pid, "listings": record(cases["listings"]), "refusals": record(cases["refusals"]), "batches": []}
for options, text in cases["batches"]:
    open("/tmp/batch", "w").write(text.format(**names))
    answers["batches"].append({"options": options, "text": text, **run([*options, "-b", "/tmp/batch"])})
holder.stdin.close(); holder.wait(); listener.kill(); listener.wait()
answers["idle"] = record(["res", "-j res show cq", "res show qp", "res show cm_id", "res show mr", "-j res show mr", "-jp res show mr"])
answers["changes"] = record(cases["changes"])
answers["version"] = run(["-V"])["stdout"]
json.dump(answers, open("/host/answers.json", "w"), indent=1)
"""


# The machine has no Python. It uses this host's, since both run the same Debian release.
PYTHON = "env PYTHONHOME=/host/usr PYTHONPATH=/host/usr/lib/python3/dist-packages LD_LIBRARY_PATH=/host/libraries /host/usr/bin/python3.11"


def bring_python(shared):
    """Copies Python and rdma-core's pyverbs to a folder that the machine sees as /host."""
    ignored = shutil.ignore_patterns("__pycache__", "test", "idlelib", "lib2to3", "config-*", "ensurepip")
    for folder in ("usr/lib/python3.11", "usr/lib/python3/dist-packages/pyverbs"):
        shutil.copytree(f"/{folder}", shared / folder, ignore=ignored)
    for folder, files in (("usr/bin", ["/usr/bin/python3.11"]), ("libraries", [*glob.glob("/lib/x86_64-linux-gnu/lib[ez]*.so.1"), *glob.glob("/lib/x86_64-linux-gnu/libpython3.11.so.1.0"),
                                                                *glob.glob("/lib/x86_64-linux-gnu/lib[em][fl][ax]*.so.1")])):
        (shared / folder).mkdir(parents=True)
        for file in files:
            shutil.copy(file, shared / folder)


class NoBuild(harness.Build):
    """A stand-in: no program of ours is needed."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self._copy = None


def main():
    with harness.Hosts(NoBuild()) as hosts, kernel_vm.KernelVm(hosts) as machine:
        holder = TOP / "tests" / "conformance" / "holds_objects.py"
        (machine.shared / "holder.py").write_text(holder.read_text(encoding="utf-8"), encoding="utf-8")
        (machine.shared / "cases.json").write_text(json.dumps({name.lower(): getattr(rdma_cases, name) for name in (
            "LISTINGS", "REFUSALS", "BATCHES", "CHANGES")}), encoding="utf-8")
        (machine.shared / "runner.py").write_text(RUNNER, encoding="utf-8")
        bring_python(machine.shared)
        status, output = machine.run(f"modprobe rdma_ucm; {PYTHON} /host/runner.py", 600)
        if status != 0:
            sys.exit(f"the machine answered {status}:\n{output}")
        answers = json.loads((machine.shared / "answers.json").read_text(encoding="utf-8"))
    pathlib.Path(sys.argv[1]).write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
