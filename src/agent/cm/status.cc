// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/status.h"

#include <algorithm>
#include <numeric>

#include "agent/cm/client.h"

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

}  // namespace verbena::agent
