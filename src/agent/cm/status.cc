// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/status.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "agent/cm/client.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

static_assert(protocol::kConnectionStates == cm::kStates);
static_assert(protocol::kConnectionMads == cm::kMessageTypes);
static_assert(protocol::kDatagramDropReasons == cm::kDropReasons);

// By CmState: the values of the kernel's enum rdma_cm_state.
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
  store_text(record.program, client.host().program());
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
  const CmTally& tally = service.tally();
  status.identifiers = static_cast<uint32_t>(tally.identifiers);
  status.listening = static_cast<uint32_t>(tally.listening);
  status.resolving = static_cast<uint32_t>(tally.resolving);
  for (size_t state = 0; state < cm::kStates; ++state) {
    status.connections[state] = static_cast<uint32_t>(manager.owned_in(static_cast<cm::State>(state)));
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

CmIdListing::CmIdListing(const CmService& service, std::optional<uid_t> user)
    : service_(service), user_(user), max_(std::min<size_t>(there_are(), protocol::kMaxCmIdRecords)) {}

const CmService::Clients& CmIdListing::clients() const {
  static const CmService::Clients kNone;
  if (!user_) return service_.clients();
  const CmService::Usage* const usage = service_.find_usage(*user_);
  return usage != nullptr ? usage->clients : kNone;
}

size_t CmIdListing::there_are() const {
  if (!user_) return service_.tally().identifiers;
  const CmService::Usage* const usage = service_.find_usage(*user_);
  return usage != nullptr ? usage->tally.identifiers : 0;
}

std::vector<protocol::CmIdRecord> CmIdListing::next(size_t most) {
  std::vector<protocol::CmIdRecord> records;
  const CmService::Clients& all = clients();
  auto client = all.lower_bound(client_);
  if (client != all.end() && client->first != client_) next_id_ = 0;  // that client has gone
  for (size_t i = 0; i < most && client != all.end() && listed_ < max_; ++i) {
    const ClientIdentifiers::Map& ids = client->second->identifiers();
    const auto id = next_id_ > UINT32_MAX ? ids.end() : ids.lower_bound(static_cast<uint32_t>(next_id_));
    if (id == ids.end()) {
      ++client;
      next_id_ = 0;
      continue;
    }
    records.push_back(record_of(*client->second, *id->second, service_.manager()));
    ++listed_;
    next_id_ = uint64_t{id->first} + 1;
  }
  is_done_ = client == all.end() || listed_ == max_;
  if (!is_done_) client_ = client->first;
  return records;
}

}  // namespace verbena::agent
