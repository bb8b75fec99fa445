// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <rdma/rdma_cma.h>

namespace verbena::rdma_core {

// Smart pointers for objects of librdmacm and libibverbs. They destroy the object with its library's
// function. Declare a derived object after the object from which it was made, so that it is destroyed first.
template <auto End>
struct Ender {
  template <class Object>
  void operator()(Object* object) const {
    End(object);
  }
};

template <class Object, auto End>
using Handle = std::unique_ptr<Object, Ender<End>>;

using Channel = Handle<rdma_event_channel, rdma_destroy_event_channel>;
using Event = Handle<rdma_cm_event, rdma_ack_cm_event>;
using Id = Handle<rdma_cm_id, rdma_destroy_id>;
using Endpoint = Handle<rdma_cm_id, rdma_destroy_ep>;
using AddressInfo = Handle<rdma_addrinfo, rdma_freeaddrinfo>;
using Domain = Handle<ibv_pd, ibv_dealloc_pd>;
using CompletionChannel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using Queue = Handle<ibv_cq, ibv_destroy_cq>;
using QueuePair = Handle<ibv_qp, ibv_destroy_qp>;
using Region = Handle<ibv_mr, ibv_dereg_mr>;
using AddressHandle = Handle<ibv_ah, ibv_destroy_ah>;

// Owns the queue pair that rdma_create_qp() attached to this id, but not the id.
using QueuePairOfId = Handle<rdma_cm_id, rdma_destroy_qp>;

}  // namespace verbena::rdma_core
