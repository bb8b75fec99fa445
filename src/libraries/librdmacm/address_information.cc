// SPDX-License-Identifier: Apache-2.0
// rdma_getaddrinfo(3): like getaddrinfo(3), with port spaces and QP types.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <netdb.h>

#include "libraries/librdmacm/abi.h"
#include "libraries/librdmacm/process.h"

namespace {

using verbena::because;
using verbena::rdmacm::answer;
using verbena::rdmacm::Process;

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
  switch (port_space) {
    case RDMA_PS_TCP:
      return IPPROTO_TCP;
    case RDMA_PS_IPOIB:
    case RDMA_PS_UDP:
      return IPPROTO_UDP;
    case RDMA_PS_IB:
      if (socket_type == SOCK_STREAM) return IPPROTO_TCP;
      return socket_type == SOCK_DGRAM ? IPPROTO_UDP : 0;
    default:
      return 0;
  }
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
