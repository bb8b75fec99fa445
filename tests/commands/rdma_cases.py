# SPDX-License-Identifier: Apache-2.0
"""Command lines for `rdma`. rdma_golden.json has the answers of iproute2's own `rdma` on a kernel rxe (recorded by
tests/interop/record_rdma_tool.py). {dev} is the device, {netdev} its network device, {qpn} the number of an RC QP in RTS,
{pid} the process that owns it."""

# Run while a program has objects open (tests/conformance/holds_objects.py).
LISTINGS = [
    "link", "l s", "link show {dev}/1", "link show {dev}", "-d link", "-j link", "-j -p link show", "-jd link", "link show {dev}/0", "-j link show {dev}/-",
    "dev", "dev show {dev}", "d s", "-d dev", "-j dev", "-jpd dev", "-jd dev",
    "resource", "res show", "r", "resource show {dev}", "-j resource", "-jp resource",
    "res show qp", "-j res show qp", "-jp res show qp", "res show qp link {dev}", "res show qp link {dev}/1", "res show qp link {dev}/0",
    "res show qp link {dev}/-", "-j res show qp link {dev}/1 lqpn {qpn}", "res show qp lqpn {qpn}", "res show qp link {dev}/1 type UD",
    "res show qp link {dev}/1 type RC,UD", "res show qp link {dev}/1 state rts", "res show qp type UC", "res show qp pid {pid}", "res show qp pid 1",
    "res show qp lqpn 1-{qpn}", "res show qp rqpn 1-100000000 type rc", "res show qp path-mig-state MIGRATED",
    "res show cq", "-j res show cq", "-d res show cq", "res show cq dev {dev}", "res show cq dev {dev} pid {pid}", "res show cq users 4", "-j res show cq poll-ctx DIRECT",
    "res show mr", "-j res show mr", "-d res show mr", "res show mr mrlen 8192", "-jp res show mr dev {dev} mrlen 1-5000",
    "res show pd", "-j res show pd", "-d res show pd", "-j res show pd pid {pid}", "res show pd users 0",
    "res show ctx", "-j res show ctx", "res show ctx pid {pid}",
    "res show srq", "-j res show srq", "res show srq type BASIC", "res show srq type XRC",
    "res show cm_id", "-j res show cm_id", "res show cm_id link {dev}/1 state LISTEN", "res show cm_id ps TCP", "res show cm_id src-port 7471",
    "statistic", "statistic show", "-j statistic show", "-jp statistic", "stat show link {dev}/1", "stat show link {dev}",
    "stat qp", "stat qp show", "-j stat qp", "stat qp show link {dev}/1", "stat qp mode", "-j stat qp mode", "stat qp mode link {dev}/1",
    "stat mr", "-j stat mr", "stat show mr", "stat mode", "stat mode supported", "-j stat mode",
    "system", "system show", "-j system show", "-jp sys", "sys show netns",
]

# Commands that are refused or print help, and change nothing.
REFUSALS = [
    "", "help", "-h", "--help", "-j", "-x", "--frobnicate", "-b", "-b /nonexistent", "-f", "frobnicate", "-j frobnicate", "lin", "linkk",
    "link help", "link shov", "link show nosuch", "link show nosuch/1", "link show {dev}/2", "link show {dev}/x", "link show {dev}/1 extra", "link show {dev} extra", "-j link show nosuch",
    "link add", "link add r", "link add r frob", "link add r type", "link add r type rxe", "link add r type rxe frob", "link add r type rxe netdev",
    "link add r type rxe netdev nosuch", "link add r type siw0 netdev {netdev}", "link add {dev} type rxe netdev {netdev}", "link add other type rxe netdev {netdev}",
    "link del", "link delete nosuch", "link del {dev} extra",
    "dev help", "dev show nosuch", "dev show {dev} extra", "dev set", "dev set nosuch name x", "dev set {dev}", "dev set {dev} frob", "dev set {dev} name",
    "dev set {dev} name {dev}", "dev set {dev} netns", "dev set {dev} netns nosuch", "dev set {dev} adaptive-moderation", "dev set {dev} adaptive-moderation frob",
    "dev frob", "-j dev frob",
    "resource help", "resource frob", "resource show frob", "resource show nosuch", "res show qp frob", "res show qp frob 1", "res show qp lqpn", "res show qp lqpn x",
    "res show qp lqpn 1 type", "res show qp link", "res show qp link nosuch", "res show qp dev {dev}", "res show qp link {dev}/2", "res show cq link {dev}",
    "res show cq dev nosuch", "-j res show cq dev nosuch", "res show cq dev {dev}/1", "res show mr pid a", "res show pd frob 3", "res show cm_id lqpn x", "res show qp lqpn 99999999",
    "-j res show qp lqpn 99999999", "res show srq frob x", "res show ctx users 3", "res show qp help",
    "stat help", "stat frob", "stat show frob", "stat show link", "stat show link nosuch", "stat show link {dev}/9", "stat qp frob", "stat qp show frob", "stat qp show link nosuch",
    "stat qp show link {dev}/1 frob 1", "stat qp show link {dev}/1 lqpn x", "stat qp set", "stat qp set frob", "stat qp set link {dev}", "stat qp set link {dev}/1",
    "stat qp set link {dev}/1 auto", "stat qp set link {dev}/1 auto frob on", "stat qp set link {dev}/1 auto type", "stat qp set link {dev}/1 auto type on", "stat qp set link {dev}/1 auto off",
    "stat qp bind", "stat qp bind link {dev}/1", "stat qp bind link {dev}/1 lqpn", "stat qp bind link {dev}/1 lqpn {qpn}", "stat qp unbind link {dev}/1 cntn 4",
    "stat mode frob", "stat mode link nosuch", "stat set", "stat set link {dev}/1", "stat set link {dev}/1 optional-counters frob", "stat unset link {dev}/1 optional-counters",
    "stat mr frob", "stat mr show", "stat mr dev {dev}", "stat mr dev nosuch",
    "system help", "system frob", "system show frob", "system set", "system set help", "system set frob", "system set netns", "system set netns frob", "system set netns shared extra",
    "-r link", "-d -d res show qp", "-V extra",
]

# Run from a file, with -batch.
BATCHES = [
    ([], "link show\n# a comment\n\ndev show # another\n"),
    ([], "link show nosuch\nlink show\n"),
    (["-f"], "link show nosuch\nlink show\n"),
    ([], "link show {dev}/1 \\\n\ndev\n"),
    ([], "'link' \"show\"\n"),
    (["-j"], "link\ndev\n"),
    ([], "frob\nlink\n"),
]

# Commands that change something, each followed by commands that show the change.
CHANGES = [
    "dev set {dev} name renamed0", "link show renamed0/1", "link show {dev}", "dev set renamed0 name {dev}", "link show {dev}/1",
    "dev set {dev} adaptive-moderation on", "-d dev show {dev}", "dev set {dev} adaptive-moderation off",
    "dev set {dev} netns other", "system set netns exclusive", "system show",
    "link del {dev}", "link", "-j link", "-jp link", "dev", "res", "-j res", "res show qp", "stat", "link add {dev} type rxe netdev {netdev}", "link show {dev}/1",
]
