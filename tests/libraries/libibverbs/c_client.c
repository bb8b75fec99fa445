/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled as C, linked to the system's libibverbs: goes once through what every RDMA program does. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                             \
  do {                                                                 \
    if (!(condition)) {                                                \
      fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

static void send_one(struct ibv_qp* qp, struct ibv_cq* cq, struct ibv_mr* mr) {
  struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = 64, .lkey = mr->lkey};
  struct ibv_send_wr wr = {
      .wr_id = 42, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad = NULL;
  struct ibv_wc wc;
  REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  REQUIRE(ibv_poll_cq(cq, 1, &wc) == 1);
  REQUIRE(wc.wr_id == 42);
  REQUIRE(wc.qp_num == qp->qp_num);
  REQUIRE(ibv_poll_cq(cq, 1, &wc) == 0);
}

int main(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  REQUIRE(list && count == 2);
  struct ibv_context* context = ibv_open_device(list[0]);
  REQUIRE(context);
  ibv_free_device_list(list);

  struct ibv_device_attr_ex device = {0};
  struct ibv_port_attr port;
  union ibv_gid gid;
  struct ibv_gid_entry entries[16];
  REQUIRE(ibv_query_device_ex(context, NULL, &device) == 0);
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  REQUIRE(port.state == IBV_PORT_ACTIVE);
  REQUIRE(ibv_query_gid(context, 1, 1, &gid) == 0);
  REQUIRE(gid.raw[12] == 10);
  REQUIRE(ibv_query_gid_table(context, entries, 16, 0) == 2);

  struct ibv_pd* pd = ibv_alloc_pd(context);
  static char buffer[64];
  struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  REQUIRE(pd && mr && cq);
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  REQUIRE(qp);
  send_one(qp, cq, mr);

  REQUIRE(ibv_destroy_qp(qp) == 0);
  REQUIRE(ibv_destroy_cq(cq) == 0);
  REQUIRE(ibv_dereg_mr(mr) == 0);
  REQUIRE(ibv_dealloc_pd(pd) == 0);
  REQUIRE(ibv_close_device(context) == 0);
  puts("went through");
  return 0;
}
