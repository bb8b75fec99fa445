#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""holds_objects.py DEVICE: opens objects of every kind on an RDMA device with rdma-core's pyverbs, prints a JSON list of them,
and keeps them until its standard input ends. The output of `rdma resource` is compared with this list."""

import json
import os
import sys

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr

# Values from verbs.h: pyverbs releases define them in different modules.
IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE = 1, 2
IBV_MTU_1024 = 3
IBV_QPT_RC, IBV_QPT_UD = 2, 4


def make_qp(pd, cq, kind, srq=None):
    return QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, srq=srq, cap=QPCap(max_send_wr=4, max_recv_wr=4)))


def connect(qp, other, gid, gid_index, send_psn, receive_psn):
    attributes = QPAttr(port_num=1)
    attributes.dest_qp_num = other.qp_num
    attributes.sq_psn, attributes.rq_psn = send_psn, receive_psn
    attributes.path_mtu = IBV_MTU_1024
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 12, 14, 7, 7
    attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE
    attributes.ah_attr = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=gid_index), is_global=1, port_num=1)
    qp.to_rts(attributes)


def main():
    context = Context(name=sys.argv[1])
    gid_index, gid = next((i, context.query_gid(1, i)) for i in range(16) if ":0000:ffff:" in context.query_gid(1, i).gid)
    pds = [PD(context), PD(context)]
    cqs = [CQ(context, 100), CQ(context, 5)]
    mrs = [MR(pds[0], 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), MR(pds[0], 4096, IBV_ACCESS_LOCAL_WRITE)]
    srq = SRQ(pds[0], SrqInitAttr(SrqAttr(max_wr=16, max_sge=1)))
    first, second = (make_qp(pds[0], cqs[0], IBV_QPT_RC) for _ in range(2))
    fresh = make_qp(pds[0], cqs[1], IBV_QPT_RC, srq)
    datagrams = make_qp(pds[0], cqs[1], IBV_QPT_UD)
    connect(first, second, gid, gid_index, 1000, 2000)
    connect(second, first, gid, gid_index, 2000, 1000)
    attributes = QPAttr(port_num=1)
    attributes.qkey = 0x11111111
    attributes.sq_psn = 77
    datagrams.to_rts(attributes)
    print(json.dumps({
        "pid": os.getpid(), "pd": len(pds), "ctx": 1, "srq": 1, "cq": len(cqs),
        "mr": sorted(({"rkey": mr.rkey, "lkey": mr.lkey, "mrlen": mr.length} for mr in mrs), key=lambda mr: mr["mrlen"]),
        "qp": [{"lqpn": first.qp_num, "rqpn": second.qp_num, "type": "RC", "state": "RTS", "sq-psn": 1000, "rq-psn": 2000},
               {"lqpn": second.qp_num, "rqpn": first.qp_num, "type": "RC", "state": "RTS", "sq-psn": 2000, "rq-psn": 1000},
               {"lqpn": fresh.qp_num, "type": "RC", "state": "RESET"},
               {"lqpn": datagrams.qp_num, "type": "UD", "state": "RTS", "sq-psn": 77}]}), flush=True)
    sys.stdin.read()
    for held in (first, second, fresh, datagrams, srq, *mrs, *cqs, *pds, context):
        held.close()


if __name__ == "__main__":
    main()
