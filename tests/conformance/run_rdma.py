#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `rdma` over Verbena as an ordinary user, and compares it with recorded answers of iproute2 on the kernel's rxe
(tests/commands/rdma_golden.json): exit statuses, columns, JSON keys and first words of error messages. Its lists must equal
the objects that a pyverbs program has open. --program selects our `rdma`, or iproute2's under `verbena run`, which uses
NETLINK_RDMA; then both must agree.

    run_rdma.py --build build/release [--program=iproute2]
"""

import json
import pathlib
import re
import subprocess
import sys

import harness

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parent / "commands"
PYTHON = "/usr/bin/python3"
DEVICE, NETDEV = "rxe0", "eth0"

# Intended differences from iproute2 on rxe, with their reasons.
OTHER_STATUS = {
    "stat qp set link {dev}/1 auto type on": "per-QP counters are always on: EOPNOTSUPP",
    "dev set {dev} adaptive-moderation on": "there are no completion queues of the kernel to moderate: EOPNOTSUPP",
    "system set netns exclusive": "already set here; the kernel would have to change the mode, and has devices",
    "system set netns shared extra": "already set in the kernel; here devices are never shared: EOPNOTSUPP",
}
OTHER_TEXT = {
    **OTHER_STATUS,
    "link add r type siw0 netdev {netdev}": "says why",
    "stat set link {dev}/1": "iproute2 adds 'error: Success'",
    "stat set link {dev}/1 optional-counters frob": "iproute2 says 'error: Success'",
    "stat qp bind link {dev}/1 lqpn {qpn}": "different error",
    "stat qp unbind link {dev}/1 cntn 4": "says why", "-V extra": "different version",
    "-d dev": "different capabilities", "-jpd dev": "different capabilities", "-jd dev": "different capabilities",
    "stat qp": "the kernel has no per-QP counters", "stat qp show": "likewise", "-j stat qp": "likewise", "stat qp show link {dev}/1": "likewise",
    "system": "a device belongs to its namespace", "system show": "likewise", "sys show netns": "likewise",
    "-j system show": "JSON where iproute2 prints text", "-jp sys": "likewise",
    "-d dev show {dev}": "different capabilities",
}
# iproute2's own `rdma` always differs from ours in some points: it has no names for two capabilities; without -p it prints a QP's
# counters on one line; it shows less of the system, as text even with -j; it gives no reasons for errors that it detects itself.
IPROUTE2 = "/usr/bin/rdma"
SAYS_LESS = {"stat set link {dev}/1", "stat set link {dev}/1 optional-counters frob", "stat qp unbind link {dev}/1 cntn 4"}
NAMELESS_CAPABILITIES = re.compile("FLUSH_GLOBAL|ATOMIC_WRITE")
# Releases after 6.1 put a line break before each closing bracket and comma of JSON, print each counter on its own line, and print
# these.
NEWER = re.compile(r' protocol \w+(?= )|"protocol": ?"\w+",\s*| monitor (?:on|off)')
# Statistics that only the kernel's rxe has; Verbena never counts them.
ONLY_KERNEL = {"ack_deferred", "send_err"}


class Rdma:
    """Runs the command in a host's namespace: ours, or iproute2's under `verbena run`."""

    def __init__(self, host, iproute2=False):
        self.host = host
        self.iproute2 = iproute2
        self.program = host.hosts.build.program.parent / "rdma"
        if not self.program.exists():
            self.program = next(host.hosts.build.program.parent.parent.glob("lib*/**/verbena/bin/rdma"))

        said = subprocess.run([IPROUTE2, "-V"], capture_output=True, text=True, check=False).stdout if iproute2 else ""
        found = re.search(r"iproute2-(\d+)\.(\d+)", said)
        self.is_newer = found is not None and (int(found[1]), int(found[2])) > (6, 1)

    def command(self):
        return [str(self.host.hosts.build.program), "run", IPROUTE2] if self.iproute2 else [str(self.program)]

    def __call__(self, *words, text=""):
        ran = subprocess.run([*self.host.enter(), *harness.ordinary_user(), *self.command(), *words], input=text, text=True,
                             capture_output=True, timeout=60, check=False, cwd="/")
        if self.is_newer:
            ran.stdout = laid_out_as_by_6_1(ran.stdout)
        return ran

    def json(self, *words):
        ran = self("-j", *words)
        if ran.returncode:
            raise RuntimeError(f"rdma -j {words}: {ran.returncode}\n{ran.stderr}")
        return json.loads(ran.stdout)


def laid_out_as_by_6_1(text):
    text = re.sub(r"\n *(?=[\],])", "", NEWER.sub("", text))
    return re.sub(r" *\n {4}(?=\w+ \d+ *$)", " ", text, flags=re.MULTILINE)


def columns(text):
    """The names in lines of names and values, without the kernel's own objects and without loopback's link, which exists while
    there is no other link."""
    return sorted({tuple(word for word in line.split()[0::2] if word not in ONLY_KERNEL)
                   for line in text.splitlines() if "[ib_core]" not in line and "rxe_lo" not in line})


def keys(text):
    return sorted({tuple(key for key in item if key not in ONLY_KERNEL) for item in json.loads(text)
                   if item.get("comm") != "ib_core" and item.get("ifname") != "rxe_lo"})


def is_json(case):
    return case["words"].startswith(("-j", "-p"))


def complaints(ran):
    """The error messages without reasons, which ours appends in parentheses and iproute2 prints in a line before."""
    return [re.sub(r" \(.*\)$", "", line) for line in ran.stderr.splitlines() if not line.startswith("Error: ")]


def differences(case, ran):
    """Yields a sentence for each difference from the recorded answer."""
    if OTHER_STATUS.get(case["words"]) is None and ran.returncode != case["status"]:
        yield f"exit status {ran.returncode}, not {case['status']}"
    if case["words"] in OTHER_TEXT:
        return
    ours, theirs = complaints(ran)[:1], case["stderr"].splitlines()[:1]
    if ours != theirs:
        yield f"complains {ours}, not {theirs}"
    if theirs or case["stdout"].startswith("Usage"):
        if case["stdout"][:5] != ran.stdout[:5]:
            yield f"prints {ran.stdout!r}, not {case['stdout']!r}"
    elif is_json(case):
        if not superset(keys(ran.stdout), keys(case["stdout"])):
            yield f"has the keys {keys(ran.stdout)}, not {keys(case['stdout'])}"
    elif not superset(columns(ran.stdout), columns(case["stdout"])):
        yield f"has the columns {columns(ran.stdout)}, not {columns(case['stdout'])}"


def superset(ours, theirs):
    """Whether ours has each of their lines, in the same order; lines of statistics may contain more."""
    return len(ours) == len(theirs) and all(line[:len(other)] == other or [w for w in line if w in other] == list(other)
                                            for line, other in zip(ours, theirs))


def check_cases(report, rdma, cases, names):
    for case in cases:
        ran = rdma(*case["words"].format(**names).split())
        for why in differences(case, ran):
            report.append(f"rdma {case['words']}: {why}")


def check_batches(report, rdma, batches, names):
    for case in batches:
        ran = rdma(*case["options"], "-b", "-", text=case["text"].format(**names))
        lines = len(ran.stdout.splitlines())
        if ran.returncode != case["status"] or lines != len(case["stdout"].splitlines()):
            report.append(f"rdma {case['options']} -b, {case['text']!r}: {ran}")
        if len(ran.stderr.splitlines()) != len(case["stderr"].splitlines()):
            report.append(f"rdma {case['options']} -b, {case['text']!r}: {ran.stderr}")


def as_iproute2_says_it(words, text):
    text = NAMELESS_CAPABILITIES.sub("UNKNOWN", text)
    if words.startswith("-j") and text:
        return json.loads(text)
    return text.split() if "stat" in words else text


def check_same(report, ours, iproute2, cases, names):
    """Both commands must give the same answers."""
    for case in cases:
        words = case["words"].format(**names)
        if words.startswith("-V") or "sys" in words and "-j" in words:
            continue
        one, other = ours(*words.split()), iproute2(*words.split())
        says_less = case["words"] in SAYS_LESS
        if one.returncode != other.returncode or not says_less and complaints(one) != complaints(other):
            report.append(f"rdma {words}: ours {one}, iproute2's {other}")
        elif not says_less and not one.stdout.startswith("Usage") and as_iproute2_says_it(words, one.stdout) != as_iproute2_says_it(words, other.stdout):
            report.append(f"rdma {words}: ours prints {one.stdout!r}, iproute2's {other.stdout!r}")


def check_objects(report, rdma, held):
    """The lists must equal what the program says it has open."""
    def expect(what, found, wanted):
        if found != wanted:
            report.append(f"{what}: {found}, not {wanted}")

    pid = str(held["pid"])
    of = {kind: rdma.json("resource", "show", kind, "pid", pid) for kind in ("qp", "cq", "mr", "pd", "ctx", "srq")}
    summary = rdma.json("resource", "show", DEVICE)[0]
    for kind in ("cq", "pd", "ctx", "srq"):
        expect(kind, len(of[kind]), held[kind])
        expect(f"summary of {kind}", summary[kind], held[kind])
    expect("mr", sorted(({"rkey": int(mr["rkey"], 16), "lkey": int(mr["lkey"], 16), "mrlen": mr["mrlen"]} for mr in of["mr"]),
                        key=lambda mr: mr["mrlen"]), held["mr"])
    found = {qp["lqpn"]: qp for qp in of["qp"]}
    for wanted in held["qp"]:
        qp = found.pop(wanted["lqpn"], {})
        expect(f"QP {wanted['lqpn']}", {key: qp.get(key) for key in wanted}, wanted)
    expect("other QPs", found, {})
    context = of["ctx"][0]["ctxn"]
    expect("their context", {row["ctxn"] for row in of["cq"] + of["pd"]}, {context})
    users = {pd["pdn"]: pd["users"] for pd in of["pd"]}
    expect("users of the PDs", sorted(users.values()), [0, 2 + 1 + 4])
    expect("their PD", {row["pdn"] for row in of["qp"] + of["mr"] + of["srq"]}, {pdn for pdn, count in users.items() if count})
    expect("users of the CQs", sorted(cq["users"] for cq in of["cq"]), [4, 4])
    expect("QPs of the SRQ", of["srq"][0]["lqpn"], [str(qp["lqpn"]) for qp in held["qp"] if qp["state"] == "RESET"])
    expect("names", {row["comm"] for rows in of.values() for row in rows}, {pathlib.Path(PYTHON).resolve().name[:15], "python3"} &
           {row["comm"] for rows in of.values() for row in rows})


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--program", choices=("ours", "iproute2"), default="ours", help="which rdma to run; default: ours")
    options = parser.parse_args()
    is_iproute2 = options.program == "iproute2"
    harness.require_root()
    harness.require_programs("ip", "setpriv", "ucmatose", PYTHON, *([IPROUTE2] if is_iproute2 else []))
    if subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True, check=False).returncode:
        harness.skip("python3-pyverbs is not installed")
    golden = json.loads((TOOLS / "rdma_golden.json").read_text(encoding="utf-8"))
    report = []
    with harness.Hosts(options.build) as hosts:
        host, _ = hosts.two()
        rdma = Rdma(host, is_iproute2)
        rdma("link", "add", DEVICE, "type", "rxe", "netdev", NETDEV)
        script = (HERE / "holds_objects.py").read_text(encoding="utf-8")
        holder = host.verbena("run", "sh", "-c", 'sleep 600 | "$0" -c "$1" "$2"', PYTHON, script, DEVICE)
        listener = host.verbena("run", "ucmatose", "-p", "7471")
        if not harness.poll_until(lambda: "}]}" in holder.output or not holder.running(), 30) or not holder.running():
            sys.exit(f"the program that holds objects: {holder.output}")
        held = json.loads(holder.output)
        harness.poll_until(lambda: rdma("res", "show", "cm_id", "state", "LISTEN").stdout, 20)
        names = {"dev": DEVICE, "netdev": NETDEV, "qpn": str(held["qp"][0]["lqpn"]), "pid": str(held["pid"])}
        check_objects(report, rdma, held)
        listed = [id_ for id_ in rdma.json("res", "show", "cm_id") if id_["ifname"] == DEVICE]
        if [(id_["pid"], id_["src-addr"]) for id_ in listed] != [(listener.pid, "0.0.0.0:7471")]:
            report.append(f"cm_id: {listed}, not ucmatose's {listener.pid}")
        check_cases(report, rdma, golden["listings"], names)
        check_cases(report, rdma, golden["refusals"], names)
        check_batches(report, rdma, golden["batches"], names)
        if is_iproute2:
            check_same(report, Rdma(host), rdma, golden["listings"] + golden["refusals"], names)
        for process in (holder, listener):
            process.kill()
        if not harness.poll_until(lambda: not rdma.json("resource", "show", "qp") and not rdma.json("resource", "show", "cm_id"), 10):
            report.append("objects of programs that are gone are listed")
        idle = rdma.json("resource", "show", DEVICE)
        if any(idle[0][kind] for kind in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")):
            report.append(f"nobody has anything, and there are {idle}")
        check_cases(report, rdma, [case for case in golden["changes"] if "netns other" not in case["words"]], names)
    for line in report:
        print(f"FAILED {line}")
    print(f"{len(golden['listings']) + len(golden['refusals']) + len(golden['batches']) + len(golden['changes'])} command lines, "
          f"{len(report)} differences")
    sys.exit(1 if report else 0)


if __name__ == "__main__":
    main()
