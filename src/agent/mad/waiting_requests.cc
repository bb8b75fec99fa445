// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/waiting_requests.h"

#include <set>

namespace verbena::agent {

bool WaitingRequests::add(WaitingRequest request, TimePoint now) {
  const auto transaction = request.mad.get<uint64_t>(mad::kTransactionAt);
  if (entries_.contains(transaction)) return false;
  const TimePoint deadline = now + request.timeout;
  of_port_[request.port].insert(transaction);
  by_deadline_.emplace(deadline, transaction);
  entries_.emplace(transaction, Entry{std::move(request), deadline});
  return true;
}

bool WaitingRequests::has_room(uint64_t port) const {
  const auto found = of_port_.find(port);
  return found == of_port_.end() || found->second.size() < kMaxOfPort;
}

void WaitingRequests::erase(Map::const_iterator entry) {
  by_deadline_.erase({entry->second.deadline, entry->first});
  const auto of_port = of_port_.find(entry->second.request.port);
  of_port->second.erase(entry->first);
  if (of_port->second.empty()) of_port_.erase(of_port);
  entries_.erase(entry);
}

WaitingRequests::Map::const_iterator WaitingRequests::find(const mad::MadHeader& header,
                                                           const roce::Address& from) const {
  const auto found = entries_.find(header.transaction);
  if (found == entries_.end()) return found;
  const WaitingRequest& request = found->second.request;
  const bool is_it =
      request.mad.u8(mad::kClassAt) == header.management_class && request.path.destination == from;
  return is_it ? found : entries_.end();
}

std::optional<WaitingRequest> WaitingRequests::answered(const mad::MadHeader& header,
                                                        const roce::Address& from) {
  const auto found = find(header, from);
  if (found == entries_.end()) return std::nullopt;
  WaitingRequest taken = found->second.request;
  erase(found);
  return taken;
}

std::optional<WaitingRequests::Due> WaitingRequests::take_due(TimePoint now) {
  if (deadline() > now) return std::nullopt;
  const auto found = entries_.find(by_deadline_.begin()->second);
  Entry& entry = found->second;
  if (entry.request.retries == 0) {
    Due due{entry.request, true};
    erase(found);
    return due;
  }
  --entry.request.retries;
  by_deadline_.erase({entry.deadline, found->first});
  entry.deadline = now + entry.request.timeout;
  by_deadline_.emplace(entry.deadline, found->first);
  return Due{entry.request, false};
}

template <class IsIt>
void WaitingRequests::remove_of(uint64_t port, IsIt is_it) {
  const auto of_port = of_port_.find(port);
  if (of_port == of_port_.end()) return;
  for (const uint64_t transaction : std::set(of_port->second)) {
    const auto entry = entries_.find(transaction);
    if (is_it(entry->second.request)) erase(entry);
  }
}

void WaitingRequests::remove_port(uint64_t port) {
  remove_of(port, [](const WaitingRequest&) { return true; });
}

void WaitingRequests::remove_agent(uint64_t port, uint32_t agent) {
  remove_of(port, [&](const WaitingRequest& request) { return request.header.agent == agent; });
}

}  // namespace verbena::agent
