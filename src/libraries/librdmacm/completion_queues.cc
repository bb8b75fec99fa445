// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/completion_queues.h"

#include <cerrno>
#include <utility>

#include "base/failed_call.h"

namespace verbena::rdmacm {
namespace {

int create(Identifier& identifier, uint32_t size, ibv_comp_channel*& channel, ibv_cq*& queue) {
  if (queue != nullptr) {
    identifier.superseded_queues.emplace_back(std::exchange(channel, nullptr), std::exchange(queue, nullptr));
  }
  channel = ibv_create_comp_channel(identifier.verbs);
  if (channel == nullptr) return errno;
  // The queue's context is the identifier, as rdma_get_recv_comp() requires.
  rdma_cm_id* id = &identifier;
  queue = ibv_create_cq(identifier.verbs, static_cast<int>(size), id, channel, 0);
  return queue != nullptr ? 0 : errno;
}

}  // namespace

int create_completion_queues(Identifier& identifier, uint32_t send_size, uint32_t receive_size) {
  int error = 0;
  if (receive_size != 0) {
    error = create(identifier, receive_size, identifier.recv_cq_channel, identifier.recv_cq);
  }
  if (error == 0 && send_size != 0) {
    error = create(identifier, send_size, identifier.send_cq_channel, identifier.send_cq);
  }
  if (error == 0) return 0;
  const KeptReason kept;
  destroy_completion_queues(identifier);
  return error;
}

void destroy_completion_queues(Identifier& identifier) {
  // The receive queue of an XRC identifier belongs to its SRQ, and outlives the QP.
  if (identifier.qp_type == IBV_QPT_XRC_RECV && identifier.srq != nullptr) return;
  ibv_cq* const receive = std::exchange(identifier.recv_cq, nullptr);
  ibv_cq* const send = std::exchange(identifier.send_cq, nullptr);
  if (receive != nullptr) ibv_destroy_cq(receive);
  if (send != nullptr && send != receive) ibv_destroy_cq(send);
  ibv_comp_channel* const receive_channel = std::exchange(identifier.recv_cq_channel, nullptr);
  ibv_comp_channel* const send_channel = std::exchange(identifier.send_cq_channel, nullptr);
  if (receive_channel != nullptr) ibv_destroy_comp_channel(receive_channel);
  if (send_channel != nullptr && send_channel != receive_channel) ibv_destroy_comp_channel(send_channel);
  for (const auto& [channel, queue] : std::exchange(identifier.superseded_queues, {})) {
    ibv_destroy_cq(queue);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
  }
}

}  // namespace verbena::rdmacm
