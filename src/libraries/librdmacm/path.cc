// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/path.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>

#include "base/text.h"
#include "control/model/message_socket.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/process.h"

namespace verbena::rdmacm {
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
