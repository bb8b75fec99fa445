// SPDX-License-Identifier: Apache-2.0
// connects_to DEVICE GID_INDEX DESTINATION_GID DESTINATION_QPN: connects an RC queue pair to a GID and a QPN,
// existing or not, and sends one RDMA WRITE. Prints the errno value of ibv_modify_qp() to RTR, or the
// completion's status. DESTINATION_QPN 0: a second queue pair of this program, which stays in INIT.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

namespace {

[[noreturn]] void die(const char* call) {
  std::perror(call);
  std::exit(2);
}

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(devices[i]), name) == 0) return ibv_open_device(devices[i]);
  }
  errno = ENODEV;
  return nullptr;
}

int initialize(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int make_ready_to_receive(ibv_qp* qp, uint8_t gid_index, const ibv_gid& gid, uint32_t qpn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qpn;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.sgid_index = gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int make_ready_to_send(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 12;
  attr.retry_cnt = 1;
  attr.max_rd_atomic = 1;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace

int main(int, char** arguments) {
  ibv_context* const context = open_device(arguments[1]);
  if (context == nullptr) die("ibv_open_device");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  ibv_qp* const other = ibv_create_qp(pd, &init);
  if (qp == nullptr || other == nullptr) die("ibv_create_qp");
  if (initialize(qp) != 0 || initialize(other) != 0) die("INIT");

  ibv_gid gid{};
  if (::inet_pton(AF_INET6, arguments[3], &gid) != 1) die("inet_pton");
  auto qpn = static_cast<uint32_t>(std::strtoul(arguments[4], nullptr, 0));
  if (qpn == 0) qpn = other->qp_num;
  const auto index = static_cast<uint8_t>(std::strtoul(arguments[2], nullptr, 10));
  if (const int error = make_ready_to_receive(qp, index, gid, qpn); error != 0) {
    std::printf("RTR: %s\n", ::strerrorname_np(error));
    return 1;
  }
  if (make_ready_to_send(qp) != 0) die("RTS");
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (ibv_post_send(qp, &wr, &bad) != 0) die("ibv_post_send");
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  std::printf("completion: %s\n", ibv_wc_status_str(wc.status));
  return wc.status == IBV_WC_SUCCESS ? 0 : 1;
}
