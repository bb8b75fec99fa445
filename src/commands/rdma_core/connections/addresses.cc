// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/addresses.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <netinet/in.h>

#include "base/format.h"
#include "commands/rdma_core/connections/events.h"

namespace verbena::rdma_core {
namespace {

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

int lookup(const char* node, const char* service, const rdma_addrinfo& hints, AddressInfo& found) {
  rdma_addrinfo* list = nullptr;
  const int error = rdma_getaddrinfo(node, service, &hints, &list);
  if (error == 0) found.reset(list);
  return error;
}

}  // namespace

int find_addresses(const std::string& source, const std::string& destination, const std::string& port,
                   const rdma_addrinfo& hints, AddressInfo& found) {
  if ((hints.ai_flags & RAI_PASSIVE) != 0) return lookup(or_null(source), port.c_str(), hints, found);
  rdma_addrinfo wanted = hints;
  AddressInfo from;
  if (!source.empty()) {
    wanted.ai_flags |= RAI_PASSIVE;
    if (const int error = lookup(source.c_str(), nullptr, wanted, from); error != 0) return error;
    wanted.ai_src_addr = from->ai_src_addr;
    wanted.ai_src_len = from->ai_src_len;
    wanted.ai_flags &= ~RAI_PASSIVE;
  }
  return lookup(or_null(destination), port.c_str(), wanted, found);
}

void tell_lookup_failure(const Output& output, const std::string& what, int error) {
  const char* remedy = error == -1 ? remedy_for_errno(errno) : "";
  tell_failure(output, verbena::format("{}: {}", what, gai_strerror(error)), remedy);
}

int find_host(const std::string& name, sockaddr_storage& address) {
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(or_null(name), nullptr, nullptr, &list); error != 0) return error;
  std::memcpy(&address, list->ai_addr, list->ai_addrlen);
  freeaddrinfo(list);
  return 0;
}

std::string shown(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return verbena::format("{}:{}", text, ntohs(v4->sin_port));
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return verbena::format("[{}]:{}", text, ntohs(v6->sin6_port));
  }
  return {};
}

nlohmann::ordered_json described(rdma_cm_id* id, const ibv_qp* queue_pair) {
  return {{"device", id->verbs != nullptr ? ibv_get_device_name(id->verbs->device) : ""},
          {"local", shown(rdma_get_local_addr(id))},
          {"peer", shown(rdma_get_peer_addr(id))},
          {"qp_number", queue_pair != nullptr ? queue_pair->qp_num : 0}};
}

void take_format(const char* word, rdma_addrinfo& hints) {
  const auto begins_with = [word](std::string_view name) {
    return strncasecmp(word, name.data(), name.size()) == 0;
  };
  if (begins_with("ip")) {
    hints.ai_flags = RAI_NUMERICHOST;
  } else if (begins_with("gid")) {
    hints.ai_flags = RAI_NUMERICHOST | RAI_FAMILY;
    hints.ai_family = AF_IB;
  } else if (!begins_with("name")) {
    complain("Warning: unknown address format", "name, ip, ipv6 and gid are known");
  }
}

}  // namespace verbena::rdma_core
