// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/path_query.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"

namespace verbena::rsockets {
namespace {

constexpr int kTimeout = 2000;  // milliseconds

// Returns the index of a GID in a port's table. Prefers the RoCEv2 entry among those with the same GID.
std::optional<uint8_t> gid_index(ibv_context* context, uint8_t port, const ibv_gid& gid) {
  std::optional<uint8_t> found;
  for (uint32_t index = 0; index < 256; ++index) {
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(context, port, index, &entry, 0) != 0) continue;
    if (std::memcmp(&entry.gid, &gid, sizeof gid) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return static_cast<uint8_t>(index);
    if (!found) found = static_cast<uint8_t>(index);
  }
  return found;
}

}  // namespace

Result<std::shared_ptr<PathQuery>> PathQuery::start(Service& service, const Address& from, const Address& to,
                                                    Answer answer) {
  std::shared_ptr<PathQuery> query(new PathQuery(std::move(answer)));
  auto* handler = static_cast<CmHandler*>(query.get());
  if (::rdma_create_id(service.channel(), &query->id_, handler, RDMA_PS_UDP) != 0) return fail(errno);
  Address source = from;
  source.set_port(0);
  Address destination = to;
  if (::rdma_resolve_addr(query->id_, source.get(), destination.get(), kTimeout) != 0) return fail(errno);
  return query;
}

PathQuery::~PathQuery() {
  if (id_ != nullptr) ::rdma_destroy_id(id_);
}

void PathQuery::on_cm_event(const rdma_cm_event& event) {
  Result<UdPath> result = fail(event.status != 0 ? std::abs(event.status) : EHOSTUNREACH);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (::rdma_resolve_route(id_, kTimeout) == 0) return;
      result = fail(errno);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      result = path();
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      break;
    default:
      return;
  }
  if (const Answer answer = std::exchange(answer_, nullptr)) answer(result);
}

Result<UdPath> PathQuery::path() const {
  if (id_->route.num_paths < 1) return fail(EHOSTUNREACH);
  const ibv_sa_path_rec& record = *id_->route.path_rec;
  const auto index = gid_index(id_->verbs, id_->port_num, record.sgid);
  if (!index) return fail(ENODEV);
  UdPath path;
  path.attributes.is_global = 1;  // RoCE always uses global routing
  path.attributes.grh.dgid = record.dgid;
  path.attributes.grh.flow_label = load_be<uint32_t>(&record.flow_label);
  path.attributes.grh.sgid_index = *index;
  path.attributes.grh.hop_limit = record.hop_limit > 1 ? record.hop_limit : 64;
  path.attributes.grh.traffic_class = record.traffic_class;
  path.attributes.dlid = load_be<uint16_t>(&record.dlid);
  path.attributes.sl = record.sl;
  path.attributes.port_num = id_->port_num;
  path.mtu = 128u << record.mtu;
  return path;
}

}  // namespace verbena::rsockets
