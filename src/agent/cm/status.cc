// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/status.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "agent/cm/client.h"
#include "protocol/text.h"

namespace verbena::agent {
namespace {

static_assert(protocol::kConnectionStates == cm::kStates);
static_assert(protocol::kConnectionMads == cm::kMessageTypes);
static_assert(protocol::kDatagramDropReasons == cm::kDropReasons);

void count(protocol::CmStatus& status, const CmIdentifier& id, const cm::Manager& manager) {
  ++status.identifiers;
  status.listening += id.listening ? 1 : 0;
  status.resolving += id.resolving != 0 ? 1 : 0;
  if (id.connection == 0) return;
  if (const auto info = manager.info(id.connection)) ++status.connections[static_cast<size_t>(info->state)];
}

// By CmState; the numbers are those of the kernel's enum rdma_cm_state.
constexpr std::array<uint8_t, kCmStates> kKernelStates = {0, 7, 1, 2, 4, 5, 6, 8, 9};

protocol::CmIdRecord record_of(const CmClient& client, const CmIdentifier& id, const cm::Manager& manager) {
  protocol::CmIdRecord record{};
  record.pid = client.host().process();
  record.uid = client.user();
  record.number = id.listed_number;
  record.device_index = id.has_device() ? id.route.device_index : protocol::kNoDevice;
  record.port_space = id.port_space;
  record.qp_type = id.qp_type;
  record.state = kKernelStates[static_cast<size_t>(id.state)];
  record.source = id.source;
  record.destination = id.destination;
  protocol::store_text(record.program, client.host().program());
  if (id.connection != 0) {
    if (const auto info = manager.info(id.connection)) record.local_qpn = info->local_qpn;
  }
  return record;
}

uint64_t sum(const cm::Counters::ByMessage& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

protocol::CmStatus status_of(CmService& service) {
  protocol::CmStatus status{};
  const cm::Manager& manager = service.manager();
  for (const CmClient* client : service.clients()) {
    for (const auto& [number, id] : client->identifiers()) count(status, *id, manager);
  }
  status.waiting = static_cast<uint32_t>(manager.waiting()) -
                   std::min(static_cast<uint32_t>(manager.waiting()),
                            status.connections[static_cast<size_t>(cm::State::kTimeWait)]);
  const cm::Counters& counters = manager.counters();
  std::ranges::copy(counters.sent, status.sent);
  std::ranges::copy(counters.received, status.received);
  std::ranges::copy(counters.dropped, status.dropped);
  status.retransmitted = sum(counters.retransmitted);
  status.duplicates = sum(counters.duplicates);
  status.timed_out = sum(counters.timed_out);
  status.stale_connections = counters.stale_connections;
  status.bad_qkey = service.gsi().counters().bad_qkey;
  status.unknown_class = service.gsi().counters().unknown_class;
  return status;
}

CmIdList identifiers_of(const CmService& service, std::optional<uid_t> user) {
  CmIdList list;
  for (const CmClient* client : service.clients()) {
    if (user && client->user() != *user) continue;
    for (const auto& [number, id] : client->identifiers()) {
      if (list.records.size() == protocol::kMostCmIdRecords) {
        ++list.left_out;
      } else {
        list.records.push_back(record_of(*client, *id, service.manager()));
      }
    }
  }
  return list;
}

}  // namespace verbena::agent
