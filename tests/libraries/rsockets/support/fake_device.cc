// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/support/fake_device.h"

#include <arpa/inet.h>

namespace verbena::rsockets::testing {
namespace {

FakeDevice& device_of(ibv_context* context) {
  return *static_cast<FakeDevice*>(context->abi_compat);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr**) {
  for (; request != nullptr; request = request->next) ++device_of(qp->context).receives;
  return 0;
}

int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) {
  return 0;
}

std::optional<uint32_t> next_message(FakeDevice& device) {
  if (device.without_end && device.receives > 0) return device.without_end;
  if (device.completed.empty()) return std::nullopt;
  const auto first = device.completed.front();
  device.completed.pop_front();
  return first;
}

int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  FakeDevice& device = device_of(queue->context);
  int count = 0;
  for (; count < most; ++count) {
    const auto message = next_message(device);
    if (!message) break;
    --device.receives;
    ++device.delivered;
    ibv_wc& completion = completions[count] = {};
    completion.wr_id = uint64_t{1} << 63;  // as stream_qp_traffic.cc numbers receives
    completion.status = IBV_WC_SUCCESS;
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.wc_flags = IBV_WC_WITH_IMM;
    completion.imm_data = htonl(*message);
  }
  return count;
}

}  // namespace

FakeDevice::FakeDevice() {
  context.abi_compat = this;
  context.ops.poll_cq = poll_cq;
  context.ops.post_recv = post_recv;
  context.ops.post_send = post_send;
  domain.context = &context;
  id.verbs = &context;
  id.pd = &domain;
}

}  // namespace verbena::rsockets::testing

using verbena::rsockets::testing::FakeDevice;

extern "C" {

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->max_qp_wr = 1024;
  attributes->max_cqe = 4096;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return new ibv_comp_channel{.context = context, .fd = -1, .refcnt = 0};
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  delete channel;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  auto* queue = new ibv_cq{};
  queue->context = context;
  queue->channel = channel;
  queue->cqe = entries;
  return queue;
}

int ibv_destroy_cq(ibv_cq* queue) {
  delete queue;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**) {
  return -1;
}

void ibv_ack_cq_events(ibv_cq*, unsigned) {}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t length, int) {
  auto* region = new ibv_mr{};
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = length;
  return region;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t length, uint64_t, unsigned) {
  return ibv_reg_mr(domain, address, length, 0);
}

int ibv_dereg_mr(ibv_mr* region) {
  delete region;
  return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr*) {
  id->qp = new ibv_qp{};
  id->qp->context = id->verbs;
  id->qp->pd = id->pd;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  delete id->qp;
  id->qp = nullptr;
}

}  // extern "C"
