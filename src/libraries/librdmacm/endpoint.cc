// SPDX-License-Identifier: Apache-2.0
// rdma_getaddrinfo(3): like getaddrinfo(3), with port spaces and QP types. rdma_create_ep(3) and related
// functions: create an identifier and its QP in one step. And functions that Debian 12's librdmacm lacks.
#include <cstdlib>

#include <netdb.h>
#include <rdma/rdma_verbs.h>

#include "libraries/librdmacm/calls.h"

namespace {

using namespace verbena::rdmacm;
using verbena::protocol::CmEvent;

struct FreesInformation {
  void operator()(rdma_addrinfo* information) const { rdma_freeaddrinfo(information); }
};
using Information = std::unique_ptr<rdma_addrinfo, FreesInformation>;

int socket_type_of(int qp_type) {
  switch (qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return SOCK_STREAM;
    case IBV_QPT_UD:
      return SOCK_DGRAM;
    default:
      return 0;
  }
}

int protocol_of(int port_space, int socket_type) {
  if (port_space == RDMA_PS_TCP) return IPPROTO_TCP;
  if (port_space == RDMA_PS_IPOIB || port_space == RDMA_PS_UDP) return IPPROTO_UDP;
  if (port_space != RDMA_PS_IB) return 0;
  if (socket_type == SOCK_STREAM) return IPPROTO_TCP;
  return socket_type == SOCK_DGRAM ? IPPROTO_UDP : 0;
}

addrinfo to_hints(const rdma_addrinfo& wanted) {
  addrinfo hints{};
  if ((wanted.ai_flags & RAI_PASSIVE) != 0) hints.ai_flags |= AI_PASSIVE;
  if ((wanted.ai_flags & RAI_NUMERICHOST) != 0) hints.ai_flags |= AI_NUMERICHOST;
  hints.ai_family = wanted.ai_family;
  hints.ai_socktype = socket_type_of(wanted.ai_qp_type);
  hints.ai_protocol = protocol_of(wanted.ai_port_space, hints.ai_socktype);
  return hints;
}

// Copies an address with malloc(). All of an rdma_addrinfo is malloc()ed, because its reader may free parts
// with free().
int copy_address(sockaddr*& to, socklen_t& to_length, const sockaddr* from, socklen_t length) {
  auto* copy = static_cast<sockaddr*>(std::malloc(length));
  if (copy == nullptr) return ENOMEM;
  std::memcpy(copy, from, length);
  std::free(to);
  to = copy;
  to_length = length;
  return 0;
}

int take_over(rdma_addrinfo& to, const rdma_addrinfo& hints, const addrinfo& from) {
  to.ai_family = from.ai_family;
  to.ai_qp_type = hints.ai_qp_type;
  if (to.ai_qp_type == 0) to.ai_qp_type = from.ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
  to.ai_port_space = hints.ai_port_space;
  if (to.ai_port_space == 0) to.ai_port_space = from.ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
  char* const name = from.ai_canonname != nullptr ? ::strdup(from.ai_canonname) : nullptr;
  if ((hints.ai_flags & RAI_PASSIVE) != 0) {
    to.ai_flags = RAI_PASSIVE;
    to.ai_src_canonname = name;
    return copy_address(to.ai_src_addr, to.ai_src_len, from.ai_addr, from.ai_addrlen);
  }
  to.ai_dst_canonname = name;
  return copy_address(to.ai_dst_addr, to.ai_dst_len, from.ai_addr, from.ai_addrlen);
}

// Returns EAI_* as getaddrinfo(3) does, or -1 and errno.
int look_up(rdma_addrinfo& to, const char* node, const char* service, const rdma_addrinfo* hints) {
  addrinfo* list = nullptr;
  const addrinfo wanted = hints != nullptr ? to_hints(*hints) : addrinfo{};
  if (const int error = ::getaddrinfo(node, service, hints != nullptr ? &wanted : nullptr, &list))
    return error;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> frees(list, ::freeaddrinfo);
  const rdma_addrinfo nothing{};
  return answer([&] { return take_over(to, hints != nullptr ? *hints : nothing, *list); });
}

int copy_hints(rdma_addrinfo& to, const rdma_addrinfo& hints) {
  to.ai_flags = hints.ai_flags;
  to.ai_family = hints.ai_family;
  to.ai_qp_type = hints.ai_qp_type;
  to.ai_port_space = hints.ai_port_space;
  if (hints.ai_dst_len == 0) return 0;
  return copy_address(to.ai_dst_addr, to.ai_dst_len, hints.ai_dst_addr, hints.ai_dst_len);
}

}  // namespace

VERBENA_ABI int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                 rdma_addrinfo** result) {
  int looked_up = 0;
  const int answered = answer([&] {
    if (result == nullptr) return because(EINVAL, "res is null");
    if (node == nullptr && service == nullptr && hints == nullptr)
      return because(EINVAL, "node, service and hints are null");
    if (const auto any = Process::current().devices.require_any(); !any) return any.error().code;
    Information information(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
    if (information == nullptr) return ENOMEM;
    if (node != nullptr || service != nullptr) {
      looked_up = look_up(*information, node, service, hints);
      if (looked_up != 0) return 0;
    } else if (const int error = copy_hints(*information, *hints)) {
      return error;
    }
    if (hints != nullptr && information->ai_src_len == 0 && hints->ai_src_len != 0) {
      if (const int error = copy_address(information->ai_src_addr, information->ai_src_len,
                                         hints->ai_src_addr, hints->ai_src_len)) {
        return error;
      }
    }
    *result = information.release();
    return 0;
  });
  if (answered == 0 && looked_up != 0) {
    verbena::log_error(
        "rdma_getaddrinfo() failed, {} ({}): node {}, service {}: does 'getent hosts' know it?",
        ::gai_strerror(looked_up), looked_up, node != nullptr ? node : "none",
        service != nullptr ? service : "none");
  }
  return answered != 0 ? answered : looked_up;
}

VERBENA_ABI void rdma_freeaddrinfo(rdma_addrinfo* information) {
  while (information != nullptr) {
    rdma_addrinfo* const next = information->ai_next;
    std::free(information->ai_connect);
    std::free(information->ai_route);
    std::free(information->ai_src_canonname);
    std::free(information->ai_dst_canonname);
    std::free(information->ai_src_addr);
    std::free(information->ai_dst_addr);
    std::free(information);
    information = next;
  }
}

namespace {

void write_event(Identifier& identifier, int type, int status, uint64_t argument) {
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.type = static_cast<uint32_t>(type);
  event.status = status;
  event.flags = verbena::protocol::kCmFromProgram;
  event.generation = identifier.process.agent.generation();
  std::memcpy(event.parameters.private_data, &argument, sizeof argument);
  {
    const std::lock_guard lock(identifier.mutex);
    event.id = identifier.number;
  }
  identifier.process.agent.post(*identifier.events, event);
}

int resolve(Identifier& identifier, const char* node, const char* service, const rdma_addrinfo* hints) {
  const int sources = hints != nullptr ? hints->ai_flags & (kFromDns | kFromSubnet) : 0;
  if ((sources & kFromSubnet) != 0)
    return because(ENOTSUP, "ai_flags {:#x}: RoCE has no subnet administrator to ask (RAI_SA)", sources);
  rdma_addrinfo* found = nullptr;
  if (const int error = rdma_getaddrinfo(node, service, hints, &found)) return error == -1 ? errno : EINVAL;
  {
    const std::lock_guard lock(identifier.mutex);
    identifier.information = found;
  }
  write_event(identifier, kAddressInformationResolved, 0, 0);
  return complete(identifier);
}

}  // namespace

VERBENA_ABI int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument) {
  return answer_for(id, [&](Identifier& identifier) {
    int type;
    std::memcpy(&type, &event, sizeof type);
    if (type != kUserEvent) return because(EINVAL, "event {} is not RDMA_CM_EVENT_USER", type);
    write_event(identifier, kUserEvent, status, argument);
    return 0;
  });
}

VERBENA_ABI int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                      const rdma_addrinfo* hints) {
  return answer_for(id, [&](Identifier& identifier) {
    {
      const std::lock_guard lock(identifier.mutex);
      if (identifier.resolving_information)
        return because(EBUSY, "an earlier rdma_resolve_addrinfo() waits for rdma_query_addrinfo()");
      identifier.resolving_information = true;
    }
    const int error = resolve(identifier, node, service, hints);
    if (error != 0) {
      const std::lock_guard lock(identifier.mutex);
      identifier.resolving_information = false;
    }
    return error;
  });
}

VERBENA_ABI int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** information) {
  return answer_for(id, [&](Identifier& identifier) {
    if (information == nullptr) return because(EINVAL, "info is null");
    const std::lock_guard lock(identifier.mutex);
    if (!identifier.resolving_information || identifier.information == nullptr)
      return because(ENOENT, "nothing was resolved: first rdma_resolve_addrinfo(), until its event");
    *information = std::exchange(identifier.information, nullptr);
    identifier.resolving_information = false;
    return 0;
  });
}

namespace {

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
