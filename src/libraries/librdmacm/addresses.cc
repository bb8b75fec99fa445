// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/addresses.h"

#include <cstdlib>

#include <arpa/inet.h>

#include "base/format.h"
#include "base/text.h"
#include "libraries/librdmacm/process.h"

namespace verbena::rdmacm {

socklen_t address_length(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
  return 0;
}

protocol::CmAddress address_of(const sockaddr* address) {
  protocol::CmAddress result{};
  if (address == nullptr) return result;
  result.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    result.port = in.sin_port;
    std::memcpy(result.address, &in.sin_addr, sizeof in.sin_addr);
  } else {
    sockaddr_in6 in6;
    std::memcpy(&in6, address, sizeof in6);
    result.port = in6.sin6_port;
    result.scope_id = in6.sin6_scope_id;
    std::memcpy(result.address, &in6.sin6_addr, sizeof in6.sin6_addr);
  }
  return result;
}

void store_address(const protocol::CmAddress& address, sockaddr_storage& to) {
  if (address.family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = address.port;
    std::memcpy(&in.sin_addr, address.address, sizeof in.sin_addr);
    std::memcpy(&to, &in, sizeof in);
  } else if (address.family == AF_INET6) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = address.port;
    in6.sin6_scope_id = address.scope_id;
    std::memcpy(&in6.sin6_addr, address.address, sizeof in6.sin6_addr);
    std::memcpy(&to, &in6, sizeof in6);
  }
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  const void* const bytes =
      any->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(any)->sin_addr)
      : any->sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(any)->sin6_addr)
          : nullptr;
  if (bytes == nullptr || ::inet_ntop(any->sa_family, bytes, text, sizeof text) == nullptr) return {};
  return verbena::format("{} port {}", text, ntohs(port_of(any)));
}

in_port_t port_of(const sockaddr* address) {
  return address_length(address) != 0 ? address_of(address).port : 0;
}

namespace {

Result<void> set_device(Identifier& identifier, const protocol::CmRoute& path) {
  if (identifier.device != nullptr || path.link[0] == '\0') return {};
  auto device = identifier.process.devices.find(load_text(path.link), path.device_index);
  if (!device) return fail(device.error().code);
  const auto domain = (*device)->use();
  if (!domain) return fail(domain.error().code);
  identifier.device = std::move(*device);
  identifier.verbs = identifier.device->context;
  identifier.pd = *domain;
  identifier.port_num = kPort;
  identifier.route.addr.addr.ibaddr.pkey = htons(kDefaultPartition);
  return {};
}

}  // namespace

Result<void> set_path(Identifier& identifier, const protocol::CmRoute& path) {
  {
    const std::lock_guard lock(identifier.mutex);
    identifier.path = path;
  }
  rdma_addr& address = identifier.route.addr;
  store_address(path.source, address.src_storage);
  store_address(path.destination, address.dst_storage);
  std::memcpy(address.addr.ibaddr.sgid.raw, path.source_gid, sizeof path.source_gid);
  std::memcpy(address.addr.ibaddr.dgid.raw, path.destination_gid, sizeof path.destination_gid);
  return set_device(identifier, path);
}

Result<void> set_path_record(Identifier& identifier) {
  constexpr uint8_t kExactly = 2;  // IBTA volume 1, 15.2.5.16: selectors
  auto* record = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
  if (record == nullptr) return fail(ENOMEM);
  protocol::CmRoute path;
  {
    const std::lock_guard lock(identifier.mutex);
    path = identifier.path;
  }
  std::memcpy(record->sgid.raw, path.source_gid, sizeof path.source_gid);
  std::memcpy(record->dgid.raw, path.destination_gid, sizeof path.destination_gid);
  record->flow_label = htonl(path.flow_label);
  record->hop_limit = path.hop_limit;
  record->traffic_class = path.traffic_class;
  record->reversible = 1;
  record->numb_path = 1;
  record->pkey = htons(kDefaultPartition);
  record->mtu_selector = kExactly;
  record->mtu = path.path_mtu;
  record->rate_selector = kExactly;
  record->rate = IBV_RATE_MAX;
  record->packet_life_time_selector = kExactly;
  record->packet_life_time = path.packet_life_time;
  std::free(identifier.route.path_rec);
  identifier.route.path_rec = record;
  identifier.route.num_paths = 1;
  return {};
}

ibv_ah_attr address_handle_of(const protocol::CmRoute& path) {
  ibv_ah_attr attributes{};
  std::memcpy(attributes.grh.dgid.raw, path.destination_gid, sizeof path.destination_gid);
  attributes.grh.flow_label = path.flow_label;
  attributes.grh.sgid_index = static_cast<uint8_t>(path.gid_index);
  attributes.grh.hop_limit = path.hop_limit;
  attributes.grh.traffic_class = path.traffic_class;
  attributes.is_global = 1;
  attributes.port_num = kPort;
  return attributes;
}

}  // namespace verbena::rdmacm
