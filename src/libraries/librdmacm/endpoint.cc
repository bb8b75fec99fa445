// SPDX-License-Identifier: Apache-2.0
// rdma_create_ep(3) and related functions: create an identifier and its QP in one step.
#include <cerrno>

#include <rdma/rdma_verbs.h>

#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/events.h"
#include "libraries/librdmacm/lifetime.h"

namespace {

using namespace verbena::rdmacm;

constexpr int kResolveMs = 2000;

// Converts the result of another rdma_*() function to an errno value.
int code(int answered) {
  return answered == 0 ? 0 : errno;
}

// Prepares a listening identifier; `attributes` are for the QPs of its requests.
int prepare_passive(Identifier& identifier, const rdma_addrinfo& information, ibv_pd* domain,
                    const ibv_qp_init_attr* attributes) {
  if (const int error = code(rdma_bind_addr(&identifier, information.ai_src_addr))) return error;
  if (domain != nullptr) identifier.pd = domain;
  if (attributes != nullptr) {
    identifier.request_attributes = *attributes;
    identifier.request_attributes->qp_type = static_cast<ibv_qp_type>(information.ai_qp_type);
  }
  return 0;
}

int prepare_active(Identifier& identifier, const rdma_addrinfo& information, ibv_pd* domain,
                   ibv_qp_init_attr* attributes) {
  if (const int error = code(
          rdma_resolve_addr(&identifier, information.ai_src_addr, information.ai_dst_addr, kResolveMs))) {
    return error;
  }
  if (const int error = code(rdma_resolve_route(&identifier, kResolveMs))) return error;
  if (attributes != nullptr) {
    attributes->qp_type = static_cast<ibv_qp_type>(information.ai_qp_type);
    if (const int error = code(rdma_create_qp(&identifier, domain, attributes))) return error;
  }
  const auto* data = static_cast<const std::byte*>(information.ai_connect);
  if (data != nullptr) identifier.connect_data.assign(data, data + information.ai_connect_len);
  return 0;
}

int take_request(Identifier& listener, rdma_cm_event& event, rdma_cm_id*& id) {
  if (event.event == RDMA_CM_EVENT_REJECTED) return ECONNREFUSED;
  if (event.status != 0) return event.status < 0 ? -event.status : event.status;
  if (event.event != RDMA_CM_EVENT_CONNECT_REQUEST)
    return because(EINVAL, "the next event of listen is {}, and not a request", rdma_event_str(event.event));
  if (listener.request_attributes) {
    ibv_qp_init_attr attributes = *listener.request_attributes;
    if (const int error = code(rdma_create_qp(event.id, listener.pd, &attributes))) return error;
  }
  id = event.id;
  id->event = &event;
  return 0;
}

}  // namespace

VERBENA_ABI int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* information, ibv_pd* domain,
                               ibv_qp_init_attr* attributes) {
  return answer([&] {
    if (id == nullptr || information == nullptr) return because(EINVAL, "id or res is null");
    auto created =
        create_identifier(nullptr, nullptr, static_cast<rdma_port_space>(information->ai_port_space),
                          static_cast<ibv_qp_type>(information->ai_qp_type));
    if (!created) return created.error().code;
    const bool passive = (information->ai_flags & RAI_PASSIVE) != 0;
    const int error = passive ? prepare_passive(**created, *information, domain, attributes)
                              : prepare_active(**created, *information, domain, attributes);
    if (error != 0) {
      const KeptReason kept;
      rdma_destroy_ep(*created);
      return error;
    }
    *id = *created;
    return 0;
  });
}

VERBENA_ABI void rdma_destroy_ep(rdma_cm_id* id) {
  if (id == nullptr) return;
  if (Identifier::is_one(id)) {
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
  }
  rdma_destroy_id(id);
}

VERBENA_ABI int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  return answer_for(listen, [&](Identifier& listener) {
    if (id == nullptr) return because(EINVAL, "id is null");
    if (!listener.synchronous)
      return because(EINVAL, "listen has an event channel: its requests come by rdma_get_cm_event()");
    if (listener.event != nullptr) {
      acknowledge(Event::of(listener.event));
      listener.event = nullptr;
    }
    const auto event = next_event(*listener.events);
    if (!event) return event.error().code;
    const int error = take_request(listener, **event, *id);
    if (error != 0) listener.event = *event;
    return error;
  });
}
