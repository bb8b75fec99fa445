// SPDX-License-Identifier: Apache-2.0
// Uses each kind of object in one process, over shared memory and over the wire, and checks every result.
// Prints failures, and releases everything made until then. Exits with 0 if all went well, with 3 after a
// failure. Prints how many descriptors are left open.
//
//     all_verbs ADDRESS [DESCRIPTORS]    waits a while until at most that many are open
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chaos/find_gid.h"

enum { kBytes = 65536, kPatienceMs = 5000 };

static int refused;

static int ok(int is_ok, const char* what) {
  if (!is_ok) {
    printf("%s: %s\n", what, strerror(errno));
    refused = 1;
  }
  return is_ok;
}
// Checks a call that returns an error number.
static int done(int error, const char* what) {
  if (error != 0) errno = error > 0 ? error : errno;
  return ok(error == 0, what);
}

static int open_descriptors(void) {
  DIR* all = opendir("/proc/self/fd");
  int count = -1;  // opendir()'s own descriptor
  if (all == NULL) return 0;
  for (struct dirent* one = readdir(all); one != NULL; one = readdir(all)) count += one->d_name[0] != '.';
  closedir(all);
  return count;
}

struct objects {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_srq* srq;
  struct ibv_mr* mr;
  struct ibv_mw* mw;
  struct ibv_qp* qp[2];
  struct ibv_qp* ud;
  struct ibv_ah* ah;
  struct ibv_td* td;
  struct ibv_pd* parent;
  char* memory;
  union ibv_gid gid;
};

static int open_device(struct objects* all, const char* address) {
  int count = 0;
  int index = -1;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (!ok(list != NULL, "ibv_get_device_list")) return -1;
  for (int i = 0; i < count && index < 0; ++i) {
    all->context = ibv_open_device(list[i]);
    if (!ok(all->context != NULL, "ibv_open_device")) break;
    index = find_gid(all->context, address, &all->gid);
    if (index >= 0) break;
    ibv_close_device(all->context);
    all->context = NULL;
  }
  ibv_free_device_list(list);
  ok(index >= 0, "the address");
  return index;
}

static int make(struct objects* all) {
  struct ibv_device_attr attributes;
  struct ibv_td_init_attr no_td = {0};
  struct ibv_parent_domain_init_attr parent = {0};
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
  if (!done(ibv_query_device(all->context, &attributes), "ibv_query_device")) return 0;
  if (!ok((all->pd = ibv_alloc_pd(all->context)) != NULL, "ibv_alloc_pd")) return 0;
  if (!ok((all->td = ibv_alloc_td(all->context, &no_td)) != NULL, "ibv_alloc_td")) return 0;
  parent.pd = all->pd;
  parent.td = all->td;
  if (!ok((all->parent = ibv_alloc_parent_domain(all->context, &parent)) != NULL, "ibv_alloc_parent_domain"))
    return 0;
  if (!ok((all->channel = ibv_create_comp_channel(all->context)) != NULL, "ibv_create_comp_channel"))
    return 0;
  if (!ok((all->cq = ibv_create_cq(all->context, 64, NULL, all->channel, 0)) != NULL, "ibv_create_cq"))
    return 0;
  if (!ok((all->srq = ibv_create_srq(all->pd, &srq)) != NULL, "ibv_create_srq")) return 0;
  all->memory = aligned_alloc(4096, kBytes);
  if (!ok(all->memory != NULL, "memory")) return 0;
  memset(all->memory, 1, kBytes);
  all->mr = ibv_reg_mr(all->pd, all->memory, kBytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
  if (!ok(all->mr != NULL, "ibv_reg_mr")) return 0;
  if (!ok((all->mw = ibv_alloc_mw(all->pd, IBV_MW_TYPE_2)) != NULL, "ibv_alloc_mw")) return 0;
  for (int i = 0; i < 3; ++i) {
    struct ibv_qp_init_attr wanted = {.send_cq = all->cq,
                                      .recv_cq = all->cq,
                                      .srq = i == 1 ? all->srq : NULL,
                                      .cap = {.max_send_wr = 16,
                                              .max_recv_wr = 16,
                                              .max_send_sge = 2,
                                              .max_recv_sge = 1,
                                              .max_inline_data = 32},
                                      .qp_type = i == 2 ? IBV_QPT_UD : IBV_QPT_RC};
    struct ibv_qp* made = ibv_create_qp(all->pd, &wanted);
    if (!ok(made != NULL, "ibv_create_qp")) return 0;
    if (i == 2)
      all->ud = made;
    else
      all->qp[i] = made;
  }
  return 1;
}

static int connect_qp(struct objects* all, struct ibv_qp* qp, struct ibv_qp* other, int gid) {
  struct ibv_qp_attr to = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  (void)all;
  if (!done(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            "to INIT"))
    return 0;
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_1024;
  to.dest_qp_num = other->qp_num;
  to.max_dest_rd_atomic = 4;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  to.ah_attr.grh.dgid = all->gid;
  to.ah_attr.grh.sgid_index = (uint8_t)gid;
  to.ah_attr.grh.hop_limit = 1;
  if (!done(ibv_modify_qp(qp, &to,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            "to RTR"))
    return 0;
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 10;
  to.retry_cnt = 3;
  to.rnr_retry = 3;
  to.max_rd_atomic = 4;
  return done(ibv_modify_qp(qp, &to,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              "to RTS");
}

static int start_ud(struct objects* all, int gid) {
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234};
  struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
  struct ibv_recv_wr receive = {0};
  struct ibv_recv_wr* bad = NULL;
  struct ibv_sge piece = {(uintptr_t)all->memory + 32768, 4096, all->mr->lkey};
  if (!done(ibv_modify_qp(all->ud, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            "UD to INIT"))
    return 0;
  to.qp_state = IBV_QPS_RTR;
  if (!done(ibv_modify_qp(all->ud, &to, IBV_QP_STATE), "UD to RTR")) return 0;
  to.qp_state = IBV_QPS_RTS;
  if (!done(ibv_modify_qp(all->ud, &to, IBV_QP_STATE | IBV_QP_SQ_PSN), "UD to RTS")) return 0;
  path.grh.dgid = all->gid;
  path.grh.sgid_index = (uint8_t)gid;
  path.grh.hop_limit = 1;
  if (!ok((all->ah = ibv_create_ah(all->pd, &path)) != NULL, "ibv_create_ah")) return 0;
  receive.sg_list = &piece;
  receive.num_sge = 1;
  return done(ibv_post_recv(all->ud, &receive, &bad), "ibv_post_recv");
}

// Waits for `count` completions. A late or wrong one counts as a failure: the peer is this process.
static int await(struct objects* all, int count) {
  struct timespec begin;
  struct timespec now;
  struct ibv_wc found;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (count > 0) {
    const int polled = ibv_poll_cq(all->cq, 1, &found);
    if (!ok(polled >= 0, "ibv_poll_cq")) return 0;
    if (polled > 0 && found.status != IBV_WC_SUCCESS) {
      printf("completion: %s\n", ibv_wc_status_str(found.status));
      refused = 1;
      return 0;
    }
    count -= polled;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - begin.tv_sec > kPatienceMs / 1000) {
      printf("completion: none\n");
      refused = 1;
      return 0;
    }
  }
  return 1;
}

static int post(struct objects* all, struct ibv_qp* qp, enum ibv_wr_opcode opcode, uint32_t bytes) {
  struct ibv_sge piece = {(uintptr_t)all->memory, bytes, all->mr->lkey};
  struct ibv_send_wr wr = {
      .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &piece, .num_sge = 1};
  struct ibv_send_wr* bad = NULL;
  wr.wr.rdma.remote_addr = (uintptr_t)all->memory + 8192;
  wr.wr.rdma.rkey = all->mr->rkey;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = (uintptr_t)all->memory + 8192;
    wr.wr.atomic.rkey = all->mr->rkey;
    wr.wr.atomic.compare_add = 1;
  }
  if (opcode == IBV_WR_BIND_MW) {
    wr.sg_list = NULL;
    wr.num_sge = 0;
    wr.bind_mw.mw = all->mw;
    wr.bind_mw.rkey = ibv_inc_rkey(all->mw->rkey);
    wr.bind_mw.bind_info.mr = all->mr;
    wr.bind_mw.bind_info.addr = (uintptr_t)all->memory;
    wr.bind_mw.bind_info.length = 4096;
    wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  }
  if (qp->qp_type == IBV_QPT_UD) {
    wr.wr.ud.ah = all->ah;
    wr.wr.ud.remote_qpn = qp->qp_num;
    wr.wr.ud.remote_qkey = 0x1234;
  }
  return done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static int use(struct objects* all, int gid) {
  struct ibv_recv_wr receive = {0};
  struct ibv_recv_wr* bad = NULL;
  struct ibv_sge piece = {(uintptr_t)all->memory + 16384, 16384, all->mr->lkey};
  struct ibv_cq* queue = NULL;
  void* context = NULL;
  if (!connect_qp(all, all->qp[0], all->qp[1], gid) || !connect_qp(all, all->qp[1], all->qp[0], gid))
    return 0;
  receive.sg_list = &piece;
  receive.num_sge = 1;
  for (int i = 0; i < 2; ++i) {
    if (!done(ibv_post_srq_recv(all->srq, &receive, &bad), "ibv_post_srq_recv")) return 0;
  }
  if (!done(ibv_req_notify_cq(all->cq, 0), "ibv_req_notify_cq")) return 0;
  if (!post(all, all->qp[0], IBV_WR_SEND, 64)) return 0;
  struct pollfd waited = {all->channel->fd, POLLIN, 0};
  if (!ok(poll(&waited, 1, kPatienceMs) == 1, "an event")) return 0;
  if (!ok(ibv_get_cq_event(all->channel, &queue, &context) == 0, "ibv_get_cq_event")) return 0;
  ibv_ack_cq_events(queue, 1);
  if (!await(all, 2)) return 0;
  if (!post(all, all->qp[0], IBV_WR_SEND, 8192) || !await(all, 2)) return 0;
  if (!post(all, all->qp[0], IBV_WR_RDMA_WRITE, 4096) || !await(all, 1)) return 0;
  if (!post(all, all->qp[0], IBV_WR_RDMA_READ, 8192) || !await(all, 1)) return 0;
  if (!post(all, all->qp[0], IBV_WR_ATOMIC_FETCH_AND_ADD, 8) || !await(all, 1)) return 0;
  if (!post(all, all->qp[0], IBV_WR_BIND_MW, 0) || !await(all, 1)) return 0;
  if (!start_ud(all, gid)) return 0;
  return post(all, all->ud, IBV_WR_SEND, 512) && await(all, 2);
}

static void give_back(struct objects* all) {
  if (all->ah != NULL) done(ibv_destroy_ah(all->ah), "ibv_destroy_ah");
  for (int i = 0; i < 2; ++i) {
    if (all->qp[i] != NULL) done(ibv_destroy_qp(all->qp[i]), "ibv_destroy_qp");
  }
  if (all->ud != NULL) done(ibv_destroy_qp(all->ud), "ibv_destroy_qp");
  if (all->mw != NULL) done(ibv_dealloc_mw(all->mw), "ibv_dealloc_mw");
  if (all->mr != NULL) done(ibv_dereg_mr(all->mr), "ibv_dereg_mr");
  if (all->srq != NULL) done(ibv_destroy_srq(all->srq), "ibv_destroy_srq");
  if (all->cq != NULL) done(ibv_destroy_cq(all->cq), "ibv_destroy_cq");
  if (all->channel != NULL) done(ibv_destroy_comp_channel(all->channel), "ibv_destroy_comp_channel");
  if (all->parent != NULL) done(ibv_dealloc_pd(all->parent), "ibv_dealloc_pd");
  if (all->td != NULL) done(ibv_dealloc_td(all->td), "ibv_dealloc_td");
  if (all->pd != NULL) done(ibv_dealloc_pd(all->pd), "ibv_dealloc_pd");
  if (all->context != NULL) done(ibv_close_device(all->context), "ibv_close_device");
  free(all->memory);
}

static void use_connection_manager(const char* address) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id = NULL;
  inet_pton(AF_INET, address, &at.sin_addr);
  if (!ok(channel != NULL, "rdma_create_event_channel")) return;
  if (ok(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id")) {
    if (ok(rdma_bind_addr(id, (struct sockaddr*)&at) == 0, "rdma_bind_addr")) {
      ok(rdma_listen(id, 4) == 0, "rdma_listen");
    }
    ok(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  }
  rdma_destroy_event_channel(channel);
}

int main(int argc, char** argv) {
  struct objects all = {0};
  if (argc < 2) return 2;
  const int gid = open_device(&all, argv[1]);
  if (gid >= 0 && make(&all)) use(&all, gid);
  give_back(&all);
  // A thread of the library may still have to close some.
  for (int i = 0; argc > 2 && open_descriptors() > atoi(argv[2]) && i < 200; ++i) usleep(10000);
  printf("descriptors %d\n", open_descriptors());
  // librdmacm's descriptors stay open until the program ends.
  use_connection_manager(argv[1]);
  return refused ? 3 : 0;
}
