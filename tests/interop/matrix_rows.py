# SPDX-License-Identifier: Apache-2.0
"""The rows of the interoperability matrix: programs that run between Verbena and the kernel, with their variants; and the
known differences in reported errors, with reasons."""

import dataclasses
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "conformance"))
import connections  # noqa: E402
import matrix  # noqa: E402
import run_rsockets  # noqa: E402

FEW = ("-n", "20")
# An ACK timeout longer than the emulated machine ever needs to answer: unnecessary retransmissions make rdma_rxe hang at times.
PATIENT = ("-u", "20")
# An ACK timeout of half a second: some losses are detected by the timer only, and seven retries are enough on a busy machine.
LOSSY = ("-u", "17")
# (family, path MTU): every family and every MTU occurs; --full runs all combinations.
MANNERS = (("ipv4", 256), ("ipv6", 1024), ("ipv4", 4096))
ALL_MANNERS = tuple((family, mtu) for family in ("ipv4", "ipv6") for mtu in (256, 1024, 4096))
# Every size from 2 bytes to 8 MiB, with the minimum of messages that perftest allows per size. They are slow, so only the last
# variant runs them.
ALL_SIZES = ("-a", "-n", "5")


def delay(program, *options, **more):
    """Like matrix.delay(), but requires only the line of figures: perftest prints a deviation of nan if an answer took long."""
    return dataclasses.replace(matrix.delay(program, *options, **more), figure=None, expect=r"\n\s*\d+\s+\d+\s+[\d.]+")


def programs():
    """Programs that connect over TCP. The path MTU is passed as -m."""
    rc, ud, uc, srq = "ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"
    rows = [matrix.pingpong(rc, "-c", *FEW), matrix.pingpong(rc, "-c", "-e", *FEW), matrix.pingpong(rc, "-c", "-s", "20000", *FEW),
            matrix.pingpong(ud, "-c", "-s", "200", *FEW),
            # A lost message would stop the ping-pong forever. With so few messages, each finds a posted receive.
            matrix.pingpong(uc, "-c", *FEW), matrix.pingpong(srq, "-c", "-q", "4", *FEW)]
    for operation in ("send", "write", "read"):
        rows += [matrix.rate(f"ib_{operation}_bw", "-s", "20000", *FEW), delay(f"ib_{operation}_lat", *FEW),
                 matrix.rate(f"ib_{operation}_bw", *ALL_SIZES, seconds=150)]
    rows += [matrix.rate("ib_atomic_bw", *FEW), matrix.rate("ib_atomic_bw", "-A", "CMP_AND_SWAP", *FEW), delay("ib_atomic_lat", *FEW)]
    for operation in ("send", "write"):
        rows += [matrix.rate(f"ib_{operation}_bw", "-c", "UC", "-s", "10000", *FEW), delay(f"ib_{operation}_lat", "-c", "UC", *FEW)]
    return rows + [
        matrix.rate("ib_send_bw", "-c", "UD", "-s", "200", *FEW), delay("ib_send_lat", "-c", "UD", "-s", "200", *FEW),
        matrix.rate("ib_send_bw", "--use-srq", "-q", "2", *FEW), matrix.rate("ib_send_bw", "-b", *FEW),
        matrix.rate("ib_write_bw", "-q", "4", "-b", *FEW), matrix.rate("ib_send_bw", "-e", *FEW),
    ]


def lossy():
    """Programs over a link that loses, duplicates and reorders frames in both directions. Only programs whose ends say goodbye
    to each other: the last acknowledgement may be lost too, and then somebody must be there to repeat it."""
    sizes = {"ib_send_lat": "10000", "ib_send_bw": "20000", "ib_write_bw": "20000", "ib_read_bw": "20000"}
    return [*((delay if program.endswith("lat") else matrix.rate)(program, "-s", size, "-n", "50", seconds=120)
              for program, size in sizes.items()), matrix.rate("ib_atomic_bw", "-n", "50", seconds=120)]


def connecting():
    """Programs that connect by address; they use the path MTU of the link."""
    return [
        connections.rping(count=5), connections.rping("-S", "60000", count=3),
        connections.ucmatose("-c", "3"), connections.udaddy("-c", "2"),
        # Linux 6.1 cannot join an IPv6 group over RoCE (ENOTSUPP).
        dataclasses.replace(connections.mckey("-C", "3"), families=("ipv4",)),
        connections.Connecting("cmtime", "cmtime -b {any} -p {port} -c 20", "cmtime -s {server} -p {port} -c 20", server_stays=True,
                               expect_client=r"disconnect\s*:"),
        connections.Connecting("rdma_client", "rdma_server -s {any} -p {port}", "rdma_client -s {server} -p {port}",
                               expect_client="end 0", expect_server="end 0"),
    ]


def rsockets():
    short = ("-I", "10", "-C", "4", "-S", "5000")
    cases = []
    for family in ("ipv4", "ipv6"):
        cases += [run_rsockets.Case("rstream", (*short, "-T", "v"), family), run_rsockets.Case("rstream", (*short, "-T", "n"), family),
                  run_rsockets.Case("riostream", (*short, "-T", "v"), family)]
    return cases


@dataclasses.dataclass(frozen=True)
class Known:
    """A known difference from the result between two kernels, and its reason. `kernel_serves`: the direction. A status of
    None: the same as between kernels."""
    case: str
    kernel_serves: bool
    why: str
    client: str = None
    server: str = None


BAD_KEY = "rdma_rxe says LOC_PROT_ERR only where a page faults; to every other key it says LOC_QP_OP_ERR (rxe_req.c, finish_packet)"
UNALIGNED = "rdma-core's library for rxe does not post it (EINVAL); the kernel's responder says what is expected here"
INVALIDATION = "a failed invalidation is a memory management error, which adapters report as MW_BIND_ERR; rxe says LOC_QP_OP_ERR"
TOO_LONG = ("rxe's copy_data() finds the length wrong (EINVAL) before it can find the buffer full (ENOSPC), and takes it for a "
            "malformed request; IBA 9.7.5.2.8 and rxe's own case for it: invalid request, local length error")
DROPPED = ("rxe takes it for a malformed request here, too; IBA 9.9.6.3, class D, and rxe's own case for it: a datagram or UC message "
           "that is too long is dropped, and the pair goes on")
BOUNDS = "rxe 6.1 looks only at the region's bounds, not at the window's (rxe_resp.c, check_rkey)"
AT_RECEIVER = "rxe completes the receive with the status of the sender; IBA 11.6.2: it is a local access error there"
FLAG = "rxe gives programs the kernel's flag (1 << 2) where libibverbs has IBV_WC_WITH_INV (1 << 3)"
REFUSED, FLUSHED = "REM_INV_REQ_ERR WR_FLUSH_ERR (ERR)", "WR_FLUSH_ERR WR_FLUSH_ERR (ERR)"

KNOWN = [
    *(Known(f"{name}, unaligned", True, UNALIGNED, REFUSED, FLUSHED) for name in ("fetch and add", "compare and swap")),
    *(Known(f"{name}, bad local key", True, BAD_KEY, "LOC_PROT_ERR WR_FLUSH_ERR (ERR)") for name in ("send", "write")),
    *(Known(f"local invalidate, {of}", True, INVALIDATION, "MW_BIND_ERR WR_FLUSH_ERR (ERR)") for of in ("of a region", "bad key")),
    *(Known(f"{name}, receive too short", False, TOO_LONG, REFUSED, "LOC_LEN_ERR WR_FLUSH_ERR (ERR)")
      for name in ("send", "send, 17000 bytes")),
    Known("send, receive with a bad local key", False, BAD_KEY, None, "LOC_PROT_ERR WR_FLUSH_ERR (ERR)"),
    Known("UC send, receive too short", False, DROPPED, None, "SUCCESS/0 WR_FLUSH_ERR (RTS)"),
    Known("UD send, receive too short", False, DROPPED, None, "RECEIVED/48/imm2 WR_FLUSH_ERR WR_FLUSH_ERR (RTS)"),
    *(Known(f"window {which}", False, BOUNDS, "REM_ACCESS_ERR", "SUCCESS WR_FLUSH_ERR (ERR)")
      for which in ("2, before its begin", "2, after its end", "1, after its end")),
    Known("write with immediate, bad key", False, AT_RECEIVER, None, "LOC_ACCESS_ERR WR_FLUSH_ERR (ERR)"),
    Known("window 2, send with invalidate", False, FLAG, None, "SUCCESS RECEIVED/0/inv (ERR)"),
]
