// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// Smart pointers for objects of libibverbs and librdmacm. They destroy the object with its library's
// function. Declare a derived object after the object from which it was made, so that it is destroyed first.
template <auto kDestroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    kDestroy(object);
  }
};

template <class Object, auto kDestroy>
using Handle = std::unique_ptr<Object, Destroy<kDestroy>>;

using CompletionChannel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using Domain = Handle<ibv_pd, ibv_dealloc_pd>;
using Region = Handle<ibv_mr, ibv_dereg_mr>;
using CompletionQueue = Handle<ibv_cq, ibv_destroy_cq>;
using QueuePair = Handle<ibv_qp, ibv_destroy_qp>;
using AddressHandle = Handle<ibv_ah, ibv_destroy_ah>;

// Post a request with one piece of memory. Return 0 or an errno, as libibverbs does.
inline int post_receive(ibv_qp* queue_pair, ibv_sge piece, uint64_t wr_id = 0) {
  ibv_recv_wr request = {wr_id, nullptr, &piece, 1};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(queue_pair, &request, &refused);
}
inline int post_receive(ibv_srq* shared, ibv_sge piece, uint64_t wr_id = 0) {
  ibv_recv_wr request = {wr_id, nullptr, &piece, 1};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_srq_recv(shared, &request, &refused);
}
inline int post_send(ibv_qp* queue_pair, ibv_sge piece, ibv_send_wr& request) {
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(queue_pair, &request, &refused);
}

}  // namespace verbena::rdma_core
