// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include <sys/mman.h>

#include "mistakes.h"

namespace mistakes {
namespace {

// As integers, because the macro ibv_reg_mr() combines them with another enumeration.
constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
constexpr int kRemoteWrite = IBV_ACCESS_REMOTE_WRITE;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kBytes = 8192;

alignas(4096) char memory[kBytes];

// A queue pair with the objects that it needs.
struct End {
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_qp* qp;
  ibv_mr* mr;
};

struct Wishes {
  ibv_qp_type type = IBV_QPT_RC;
  int region_access = kAll;
  unsigned qp_access = kAll;
  uint32_t psn = 0;
  uint32_t expected_psn = 0;
};

End make(const Place& place, const Wishes& wishes = {}) {
  End end{};
  end.pd = ibv_alloc_pd(place.context);
  end.cq = ibv_create_cq(place.context, 16, nullptr, nullptr, 0);
  end.mr = ibv_reg_mr(end.pd, memory, 4096, wishes.region_access);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.cap = {4, 4, 2, 2, 32};
  init.qp_type = wishes.type;
  end.qp = ibv_create_qp(end.pd, &init);
  need(end.mr != nullptr && end.qp != nullptr, "ibv_create_qp");
  return end;
}

int initialize(ibv_qp* qp, const Wishes& wishes = {}) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 0x1111;
  attr.qp_access_flags = wishes.qp_access;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

constexpr int kReceiverMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSenderMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

ibv_qp_attr receiver(const Place& place, uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 4;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = place.gid;
  attr.ah_attr.grh.sgid_index = place.gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  return attr;
}

ibv_qp_attr sender(uint32_t psn = 0) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 8;
  attr.retry_cnt = 1;
  attr.sq_psn = psn;
  attr.max_rd_atomic = 4;
  return attr;
}

End ready(const Place& place, const Wishes& wishes = {}) {
  End end = make(place, wishes);
  need(initialize(end.qp, wishes) == 0, "INIT");
  return end;
}

void connect(const Place& place, const End& end, uint32_t peer, const Wishes& wishes = {}) {
  ibv_qp_attr attr = receiver(place, peer);
  attr.rq_psn = wishes.expected_psn;
  need(ibv_modify_qp(end.qp, &attr, kReceiverMask) == 0, "RTR");
  attr = sender(wishes.psn);
  need(ibv_modify_qp(end.qp, &attr, kSenderMask) == 0, "RTS");
}

void connect_unreliable(const Place& place, const End& end, uint32_t peer) {
  ibv_qp_attr attr = receiver(place, peer);
  constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  need(ibv_modify_qp(end.qp, &attr, kMask) == 0, "RTR");
  attr = sender();
  need(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
}

struct Pair {
  End first, second;
};

// Connects two queue pairs of this process. The second has the rights of `wishes`.
Pair connected(const Place& place, const Wishes& wishes = {}) {
  const Pair pair{ready(place), ready(place, wishes)};
  connect(place, pair.first, pair.second.qp->qp_num, {.psn = wishes.psn});
  connect(place, pair.second, pair.first.qp->qp_num, {.expected_psn = wishes.expected_psn});
  return pair;
}

End datagrams(const Place& place) {
  const End end = ready(place, {.type = IBV_QPT_UD});
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  need(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE) == 0, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  need(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
  return end;
}

ibv_sge whole(const End& end, uint32_t length = 64) {
  return {reinterpret_cast<uint64_t>(memory), length, end.mr->lkey};
}

int post(const End& end, ibv_send_wr wr, ibv_sge sge) {
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(end.qp, &wr, &bad);
}

int receive(const End& end, ibv_sge sge) {
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(end.qp, &wr, &bad);
}

ibv_send_wr remote(ibv_wr_opcode opcode, uint32_t rkey, uint64_t offset = 0) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(memory) + offset;
    wr.wr.atomic.rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memory) + offset;
    wr.wr.rdma.rkey = rkey;
  }
  return wr;
}

ibv_send_wr datagram(const Place& place, const End& end, uint32_t peer, uint32_t qkey) {
  ibv_ah_attr attr = receiver(place, peer).ah_attr;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = ibv_create_ah(end.pd, &attr);
  need(wr.wr.ud.ah != nullptr, "ibv_create_ah");
  wr.wr.ud.remote_qpn = peer;
  wr.wr.ud.remote_qkey = qkey;
  return wr;
}

void wait_for(const End& end) {
  ibv_wc wc{};
  while (ibv_poll_cq(end.cq, 1, &wc) == 0) {
  }
  std::printf("completion: %s\n", ibv_wc_status_str(wc.status));
}

// Polls for a while, for a receiver that gets no event for dropped packets.
void poll_for_a_while(const End& end) {
  ibv_wc wc{};
  for (int i = 0; i < 100'000; ++i) ibv_poll_cq(end.cq, 1, &wc);
}

// Posts a one-sided request that its target does not allow.
void request(const Place& place, const Wishes& wishes, ibv_wr_opcode opcode, uint64_t offset = 0) {
  const Pair pair = connected(place, wishes);
  need(post(pair.first, remote(opcode, pair.second.mr->rkey, offset), whole(pair.first, 8)) == 0,
       "ibv_post_send");
  wait_for(pair.first);
}

void send_from(const Place& place, ibv_sge (*sge)(Pair&)) {
  Pair pair = connected(place);
  need(receive(pair.second, whole(pair.second)) == 0, "ibv_post_recv");
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  if (post(pair.first, wr, sge(pair)) == 0) wait_for(pair.first);
}

constexpr Mistake kMistakes[] = {
    {"write_to_read_only_region",
     [](const Place& place) {
       request(place, {.region_access = IBV_ACCESS_LOCAL_WRITE}, IBV_WR_RDMA_WRITE);
     }},
    {"write_without_qp_access",
     [](const Place& place) { request(place, {.qp_access = 0}, IBV_WR_RDMA_WRITE); }},
    {"atomic_without_access",
     [](const Place& place) {
       request(place, {.region_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
               IBV_WR_ATOMIC_FETCH_AND_ADD);
     }},
    {"atomic_at_odd_address", [](const Place& place) { request(place, {}, IBV_WR_ATOMIC_FETCH_AND_ADD, 3); }},
    {"write_behind_region", [](const Place& place) { request(place, {}, IBV_WR_RDMA_WRITE, 4092); }},
    {"write_with_wrong_rkey",
     [](const Place& place) {
       const Pair pair = connected(place);
       need(post(pair.first, remote(IBV_WR_RDMA_WRITE, 0x12345678), whole(pair.first)) == 0, "post");
       wait_for(pair.first);
     }},
    {"lkey_of_other_pd",
     [](const Place& place) { send_from(place, [](Pair& pair) { return whole(pair.second); }); }},
    {"sge_outside_region",
     [](const Place& place) { send_from(place, [](Pair& pair) { return whole(pair.first, 4097); }); }},
    {"deregistered_region",
     [](const Place& place) {
       send_from(place, [](Pair& pair) {
         const ibv_sge sge = whole(pair.first);
         need(ibv_dereg_mr(pair.first.mr) == 0, "ibv_dereg_mr");
         return sge;
       });
     }},
    {"read_into_read_only_region",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_mr* const mr = ibv_reg_mr(pair.first.pd, memory, 64, 0);
       ibv_sge sge = whole(pair.first);
       sge.lkey = mr->lkey;
       need(post(pair.first, remote(IBV_WR_RDMA_READ, pair.second.mr->rkey), sge) == 0, "post");
       wait_for(pair.first);
     }},
    {"inline_too_long",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       wr.send_flags = IBV_SEND_INLINE;
       post(pair.first, wr, whole(pair.first, 4000));
     }},
    {"full_send_queue",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       for (int i = 0; i < 65; ++i) {
         if (post(pair.first, wr, whole(pair.first)) != 0) return;
       }
     }},
    {"full_receive_queue",
     [](const Place& place) {
       const End end = ready(place);
       for (int i = 0; i < 65; ++i) {
         if (receive(end, whole(end)) != 0) return;
       }
     }},
    {"unknown_opcode",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_send_wr wr{};
       wr.opcode = no_such<ibv_wr_opcode>(77);
       post(pair.first, wr, whole(pair.first));
     }},
    {"post_to_destroyed_qp",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp copy = *end.qp;
       need(ibv_destroy_qp(end.qp) == 0, "ibv_destroy_qp");
       ibv_qp_attr attr{};
       attr.qp_state = IBV_QPS_ERR;
       ibv_modify_qp(&copy, &attr, IBV_QP_STATE);
     }},
    {"destroy_cq_in_use", [](const Place& place) { ibv_destroy_cq(make(place).cq); }},
    {"dealloc_pd_in_use", [](const Place& place) { ibv_dealloc_pd(make(place).pd); }},
    {"destroy_srq_in_use",
     [](const Place& place) {
       End end = make(place);
       ibv_srq_init_attr attr{};
       attr.attr = {16, 1, 0};
       ibv_srq* const srq = ibv_create_srq(end.pd, &attr);
       ibv_qp_init_attr init{};
       init.send_cq = init.recv_cq = end.cq;
       init.cap = {4, 4, 1, 1, 0};
       init.qp_type = IBV_QPT_RC;
       init.srq = srq;
       need(ibv_create_qp(end.pd, &init) != nullptr, "ibv_create_qp");
       ibv_destroy_srq(srq);
     }},
    {"close_device_in_use",
     [](const Place& place) {
       make(place);
       ibv_close_device(place.context);
     }},
    {"dereg_twice",
     [](const Place& place) {
       const End end = make(place);
       need(ibv_dereg_mr(end.mr) == 0, "ibv_dereg_mr");
       ibv_dereg_mr(end.mr);
     }},
    {"gid_index_200",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       attr.ah_attr.grh.sgid_index = 200;
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"no_global_route",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       attr.ah_attr.is_global = 0;
       attr.ah_attr.dlid = 1;
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"link_local_to_routed",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       attr.ah_attr.grh.sgid_index = 0;
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"port_2",
     [](const Place& place) {
       const End end = make(place);
       ibv_qp_attr attr{};
       attr.qp_state = IBV_QPS_INIT;
       attr.port_num = 2;
       ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
     }},
    {"query_port_2",
     [](const Place& place) {
       ibv_port_attr attr{};
       ibv_query_port(place.context, 2, &attr);
     }},
    {"mask_lacks_dest_qpn",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       ibv_modify_qp(end.qp, &attr, kReceiverMask & ~(IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
     }},
    {"reset_to_rts",
     [](const Place& place) {
       const End end = make(place);
       ibv_qp_attr attr = sender();
       ibv_modify_qp(end.qp, &attr, kSenderMask);
     }},
    {"mtu_1500",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       attr.path_mtu = no_such<ibv_mtu>(1500);
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"max_rd_atomic_255",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 17);
       attr.max_dest_rd_atomic = 255;
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"qpn_of_32_bits",
     [](const Place& place) {
       const End end = ready(place);
       ibv_qp_attr attr = receiver(place, 0x12345678);
       ibv_modify_qp(end.qp, &attr, kReceiverMask);
     }},
    {"psn_mismatch",
     [](const Place& place) {
       const Pair pair = connected(place, {.psn = 1000, .expected_psn = 5});
       need(post(pair.first, remote(IBV_WR_RDMA_WRITE, pair.second.mr->rkey), whole(pair.first)) == 0,
            "post");
       wait_for(pair.first);
     }},
    {"old_psn",
     [](const Place& place) {
       const Pair pair = connected(place, {.psn = 5, .expected_psn = 1000});
       need(post(pair.first, remote(IBV_WR_RDMA_WRITE, pair.second.mr->rkey), whole(pair.first)) == 0,
            "post");
       wait_for(pair.first);
     }},
    {"wrong_qkey",
     [](const Place& place) {
       const End first = datagrams(place), second = datagrams(place);
       need(receive(second, whole(second, 1024)) == 0, "ibv_post_recv");
       need(post(first, datagram(place, first, second.qp->qp_num, 0x2222), whole(first)) == 0, "post");
       wait_for(first);
       poll_for_a_while(second);
     }},
    {"datagram_to_nobody",
     [](const Place& place) {
       const End first = datagrams(place);
       need(post(first, datagram(place, first, 0xabcdef, 0x1111), whole(first)) == 0, "post");
       wait_for(first);
     }},
    {"datagram_without_receive",
     [](const Place& place) {
       const End first = datagrams(place), second = datagrams(place);
       need(post(first, datagram(place, first, second.qp->qp_num, 0x1111), whole(first)) == 0, "post");
       wait_for(first);
       poll_for_a_while(second);
     }},
    {"datagram_without_room_for_grh",
     [](const Place& place) {
       const End first = datagrams(place), second = datagrams(place);
       need(receive(second, whole(second, 64)) == 0, "ibv_post_recv");
       need(post(first, datagram(place, first, second.qp->qp_num, 0x1111), whole(first, 64)) == 0, "post");
       wait_for(second);
     }},
    {"datagram_over_mtu",
     [](const Place& place) {
       const End first = datagrams(place);
       if (post(first, datagram(place, first, first.qp->qp_num, 0x1111), whole(first, 4000)) == 0)
         wait_for(first);
     }},
    {"datagram_without_ah",
     [](const Place& place) {
       const End first = datagrams(place);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       post(first, wr, whole(first));
     }},
    {"unreliable_write_with_wrong_rkey",
     [](const Place& place) {
       const End first = ready(place, {.type = IBV_QPT_UC}), second = ready(place, {.type = IBV_QPT_UC});
       connect_unreliable(place, first, second.qp->qp_num);
       connect_unreliable(place, second, first.qp->qp_num);
       need(post(first, remote(IBV_WR_RDMA_WRITE, 0x12345678), whole(first)) == 0, "post");
       wait_for(first);
       poll_for_a_while(second);
     }},
    {"attach_unicast_gid", [](const Place& place) { ibv_attach_mcast(datagrams(place).qp, &place.gid, 0); }},
    {"attach_rc",
     [](const Place& place) {
       ibv_gid group = place.gid;
       group.raw[12] = 239;
       ibv_attach_mcast(ready(place).qp, &group, 0);
     }},
    {"remote_write_without_local_write",
     [](const Place& place) { ibv_reg_mr(ibv_alloc_pd(place.context), memory, 64, kRemoteWrite); }},
    {"unmapped_memory",
     [](const Place& place) {
       void* const at = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       ::munmap(at, 8192);
       ibv_reg_mr(ibv_alloc_pd(place.context), at, 8192, kLocalWrite);
     }},
    {"read_only_memory",
     [](const Place& place) {
       void* const at = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       ibv_reg_mr(ibv_alloc_pd(place.context), at, 8192, kLocalWrite);
     }},
    {"cq_of_0", [](const Place& place) { ibv_create_cq(place.context, 0, nullptr, nullptr, 0); }},
    {"comp_vector_99", [](const Place& place) { ibv_create_cq(place.context, 16, nullptr, nullptr, 99); }},
    {"qp_without_cq",
     [](const Place& place) {
       ibv_qp_init_attr init{};
       init.cap = {4, 4, 1, 1, 0};
       init.qp_type = IBV_QPT_RC;
       ibv_create_qp(ibv_alloc_pd(place.context), &init);
     }},
    {"unknown_qp_type",
     [](const Place& place) {
       End end = make(place);
       ibv_qp_init_attr init{};
       init.send_cq = init.recv_cq = end.cq;
       init.cap = {4, 4, 1, 1, 0};
       init.qp_type = no_such<ibv_qp_type>(99);
       ibv_create_qp(end.pd, &init);
     }},
    {"null_pd", [](const Place&) { ibv_reg_mr(nullptr, memory, 64, 0); }},
    {"ah_of_port_0",
     [](const Place& place) {
       ibv_ah_attr attr = receiver(place, 1).ah_attr;
       attr.port_num = 0;
       ibv_create_ah(ibv_alloc_pd(place.context), &attr);
     }},
    {"srq_limit_too_high",
     [](const Place& place) {
       ibv_srq_init_attr attr{};
       attr.attr = {16, 1, 0};
       ibv_srq* const srq = ibv_create_srq(ibv_alloc_pd(place.context), &attr);
       ibv_srq_attr change{};
       change.srq_limit = 1000;
       ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT);
     }},
    {"receive_in_reset",
     [](const Place& place) {
       const End end = make(place);
       receive(end, whole(end));
     }},
    {"nobody_receives",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       need(post(pair.first, wr, whole(pair.first)) == 0, "ibv_post_send");
       wait_for(pair.first);
     }},
    {"receive_too_short",
     [](const Place& place) {
       const Pair pair = connected(place);
       need(receive(pair.second, whole(pair.second, 8)) == 0, "ibv_post_recv");
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       need(post(pair.first, wr, whole(pair.first, 100)) == 0, "ibv_post_send");
       wait_for(pair.second);
     }},
    {"too_many_requests",
     [](const Place& place) {
       const End end = make(place);
       ibv_qp_init_attr init{};
       init.send_cq = init.recv_cq = end.cq;
       init.cap = {99'999'999, 4, 1, 1, 0};
       init.qp_type = IBV_QPT_RC;
       ibv_create_qp(end.pd, &init);
     }},
    {"too_many_pieces",
     [](const Place& place) {
       const Pair pair = connected(place);
       ibv_sge sges[9] = {};
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       wr.sg_list = sges;
       wr.num_sge = 9;
       ibv_send_wr* bad = nullptr;
       ibv_post_send(pair.first.qp, &wr, &bad);
     }},
    {"send_in_init",
     [](const Place& place) {
       const End end = ready(place);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_SEND;
       post(end, wr, whole(end));
     }},
    {"receive_beside_srq",
     [](const Place& place) {
       End end = make(place);
       ibv_srq_init_attr attr{};
       attr.attr = {16, 1, 0};
       ibv_qp_init_attr init{};
       init.send_cq = init.recv_cq = end.cq;
       init.cap = {4, 4, 1, 1, 0};
       init.qp_type = IBV_QPT_RC;
       init.srq = ibv_create_srq(end.pd, &attr);
       end.qp = ibv_create_qp(end.pd, &init);
       need(end.qp != nullptr && initialize(end.qp) == 0, "INIT");
       receive(end, whole(end));
     }},
    {"write_on_ud",
     [](const Place& place) {
       const End end = datagrams(place);
       ibv_send_wr wr = datagram(place, end, end.qp->qp_num, 0x1111);
       wr.opcode = IBV_WR_RDMA_WRITE;
       if (post(end, wr, whole(end)) == 0) wait_for(end);
     }},
    {"unacknowledged_cq_event",
     [](const Place& place) {
       ibv_comp_channel* const channel = ibv_create_comp_channel(place.context);
       Pair pair = connected(place);
       ibv_cq* const cq = ibv_create_cq(place.context, 16, nullptr, channel, 0);
       ibv_qp_init_attr init{};
       init.send_cq = init.recv_cq = cq;
       init.cap = {4, 4, 2, 2, 32};
       init.qp_type = IBV_QPT_RC;
       ibv_qp* const qp = ibv_create_qp(pair.first.pd, &init);
       need(initialize(qp) == 0 && ibv_req_notify_cq(cq, 0) == 0, "INIT");
       End end = pair.first;
       end.qp = qp;
       end.cq = cq;
       need(receive(end, whole(end)) == 0, "post");
       ibv_qp_attr attr{};
       attr.qp_state = IBV_QPS_ERR;
       need(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "ERR");
       ibv_cq* of = nullptr;
       void* context = nullptr;
       need(ibv_get_cq_event(channel, &of, &context) == 0, "ibv_get_cq_event");
       need(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
       ibv_destroy_cq(cq);
     }},
};

}  // namespace

std::span<const Mistake> with_verbs() {
  return kMistakes;
}

}  // namespace mistakes
