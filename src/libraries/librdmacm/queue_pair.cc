// SPDX-License-Identifier: Apache-2.0
// rdma_cm_id::qp: librdmacm creates it with defaults for missing attributes, and moves it through its states.
// The same for rdma_cm_id::srq.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "base/failed_call.h"
#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/qp_attributes.h"

namespace {

using namespace verbena::rdmacm;

// Destroys the completion queues, each with a channel, that librdmacm provides if the application does not:
// rdma_cm_id::send_cq, recv_cq and their channels.
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

// Creates them. Sizes are in entries; a size of 0 creates no queue. Returns 0 or an errno value.
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

bool clash(const ibv_cq* own, const ibv_cq* given) {
  return own != nullptr && given != nullptr && own != given;
}

int add_defaults(Identifier& identifier, ibv_qp_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attributes.pd = identifier.pd;
  }
  if (attributes.pd == nullptr) return because(EINVAL, "pd is null, and id->pd is, too");
  if (identifier.verbs != attributes.pd->context)
    return because(EINVAL, "pd is of another ibv_context than id->verbs");
  if (clash(identifier.recv_cq, attributes.recv_cq)) return because(EINVAL, "recv_cq is not id->recv_cq");
  if (clash(identifier.send_cq, attributes.send_cq)) return because(EINVAL, "send_cq is not id->send_cq");
  const bool has_domain = (attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && attributes.xrcd != nullptr;
  if (identifier.qp_type == IBV_QPT_XRC_RECV && !has_domain) {
    const auto domain = identifier.device->shared_xrc_domain();
    if (!domain) return domain.error().code;
    attributes.xrcd = *domain;
    attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  const bool has_send = attributes.send_cq != nullptr || identifier.send_cq != nullptr;
  const bool has_receive = attributes.recv_cq != nullptr || identifier.recv_cq != nullptr;
  if (const int error = create_completion_queues(identifier, has_send ? 0 : attributes.cap.max_send_wr,
                                                 has_receive ? 0 : attributes.cap.max_recv_wr)) {
    return error;
  }
  if (attributes.send_cq == nullptr) attributes.send_cq = identifier.send_cq;
  if (attributes.recv_cq == nullptr) attributes.recv_cq = identifier.recv_cq;
  if (attributes.srq == nullptr) attributes.srq = identifier.srq;
  return 0;
}

int prepare(Identifier& identifier, ibv_qp* qp) {
  if (const int error = begin_ece(identifier, qp)) return error;
  if (const int error = initialize(identifier, qp)) return error;
  return note_local_ece(identifier, qp);
}

int create_qp(Identifier& identifier, ibv_qp_init_attr_ex& attributes) {
  if (identifier.qp != nullptr) return because(EINVAL, "id has a queue pair already");
  if (identifier.device == nullptr) return because(EINVAL, kNoDevice);
  if (const int error = add_defaults(identifier, attributes)) return error;
  ibv_qp* const qp = ibv_create_qp_ex(identifier.verbs, &attributes);
  int error = qp != nullptr ? prepare(identifier, qp) : errno;
  if (error != 0) {
    if (qp != nullptr && attributes.qp_type != identifier.qp_type)
      because(error,
              "qp_type {} does not go with id, which is for {}: RDMA_PS_TCP is for RC, RDMA_PS_UDP for UD",
              static_cast<int>(attributes.qp_type), static_cast<int>(identifier.qp_type));
    const KeptReason kept;
    if (qp != nullptr) ibv_destroy_qp(qp);
    destroy_completion_queues(identifier);
    return error;
  }
  identifier.pd = attributes.pd;  // qp->pd is null for the target of an XRC connection
  identifier.qp = qp;
  return 0;
}

}  // namespace

VERBENA_ABI int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "qp_init_attr is null");
    return create_qp(identifier, *attributes);
  });
}

VERBENA_ABI int rdma_create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "qp_init_attr is null");
    // ibv_qp_init_attr_ex begins with ibv_qp_init_attr.
    ibv_qp_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = domain != nullptr ? domain : identifier.pd;
    const int error = create_qp(identifier, extended);
    std::memcpy(static_cast<void*>(attributes), &extended, sizeof *attributes);
    return error;
  });
}

namespace {

// Takes the object away from the event that another thread may be processing. A child after fork() has no
// such thread, and may find the lock taken.
template <class Object>
Object* take_member(Identifier& identifier, Object* rdma_cm_id::*member) {
  std::unique_lock lock(identifier.processing, std::defer_lock);
  if (identifier.process.is_current()) lock.lock();
  return std::exchange(identifier.*member, nullptr);
}

// Destroys rdma_cm_id::qp or rdma_cm_id::srq, and the completion queues that librdmacm has provided for it.
template <class Object>
void destroy_member(rdma_cm_id* id, Object* rdma_cm_id::*member, int (*destroy)(Object*),
                    const char* call = __builtin_FUNCTION()) {
  if (id == nullptr) return;
  const auto body = [&] {
    if (!Identifier::is_one(id)) return because(EINVAL, kNoIdentifier, verbena::ptr(id));
    Object* const object = take_member(Identifier::of(id), member);
    if (object == nullptr) return 0;
    destroy(object);
    destroy_completion_queues(Identifier::of(id));
    return 0;
  };
  answer(body, call);
}

bool has(const ibv_srq_init_attr_ex& attributes, uint32_t bit, const void* object) {
  return (attributes.comp_mask & bit) != 0 && object != nullptr;
}

// Adds what an XRC SRQ needs: a completion queue of its own, and an XRC domain.
int add_xrc_defaults(Identifier& identifier, ibv_srq_init_attr_ex& attributes) {
  if (!has(attributes, IBV_SRQ_INIT_ATTR_XRCD, attributes.xrcd)) {
    const auto domain = identifier.device->shared_xrc_domain();
    if (!domain) return domain.error().code;
    attributes.xrcd = *domain;
  }
  if (!has(attributes, IBV_SRQ_INIT_ATTR_CQ, attributes.cq)) {
    if (const int error = create_completion_queues(identifier, 0, attributes.attr.max_wr)) return error;
    attributes.cq = identifier.recv_cq;
  }
  attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return 0;
}

int create_srq(Identifier& identifier, ibv_srq_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0)
    return because(EINVAL, "comp_mask {:#x} lacks IBV_SRQ_INIT_ATTR_TYPE", attributes.comp_mask);
  if (identifier.device == nullptr) return because(EINVAL, kNoDevice);
  if (!has(attributes, IBV_SRQ_INIT_ATTR_PD, attributes.pd)) {
    attributes.pd = identifier.pd;
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (attributes.srq_type == IBV_SRQT_XRC) {
    if (const int error = add_xrc_defaults(identifier, attributes)) return error;
  }
  ibv_srq* const srq = ibv_create_srq_ex(identifier.verbs, &attributes);
  if (srq == nullptr) {
    const int error = errno;
    const KeptReason kept;
    destroy_completion_queues(identifier);
    return error;
  }
  if (identifier.pd == nullptr) identifier.pd = attributes.pd;
  identifier.srq = srq;
  return 0;
}

}  // namespace

VERBENA_ABI int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "attr is null");
    return create_srq(identifier, *attributes);
  });
}

VERBENA_ABI int rdma_create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "attr is null");
    // ibv_srq_init_attr_ex begins with ibv_srq_init_attr.
    ibv_srq_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = identifier.qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    extended.pd = domain;
    const int error = create_srq(identifier, extended);
    std::memcpy(static_cast<void*>(attributes), &extended, sizeof *attributes);
    return error;
  });
}

VERBENA_ABI void rdma_destroy_qp(rdma_cm_id* id) {
  destroy_member(id, &rdma_cm_id::qp, ibv_destroy_qp);
}

VERBENA_ABI void rdma_destroy_srq(rdma_cm_id* id) {
  destroy_member(id, &rdma_cm_id::srq, ibv_destroy_srq);
}
