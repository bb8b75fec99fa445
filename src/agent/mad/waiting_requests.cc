// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/waiting_requests.h"

#include <iterator>

namespace verbena::agent {

bool WaitingRequests::add(WaitingRequest request, TimePoint now) {
  const auto transaction = request.mad.get<uint64_t>(fabric::kTransactionAt);
  if (entries_.contains(transaction)) return false;
  const TimePoint deadline = now + request.timeout;
  ++of_port_[request.port];
  by_deadline_.emplace(deadline, transaction);
  entries_.emplace(transaction, Entry{std::move(request), deadline});
  return true;
}

bool WaitingRequests::has_room(uint64_t port) const {
  const auto found = of_port_.find(port);
  return found == of_port_.end() || found->second < kMostOfPort;
}

void WaitingRequests::erase(Map::const_iterator entry) {
  by_deadline_.erase({entry->second.deadline, entry->first});
  const auto count = of_port_.find(entry->second.request.port);
  if (--count->second == 0) of_port_.erase(count);
  entries_.erase(entry);
}

WaitingRequests::Map::const_iterator WaitingRequests::find(const fabric::MadHeader& header,
                                                           const roce::Address& from) const {
  const auto found = entries_.find(header.transaction);
  if (found == entries_.end()) return found;
  const WaitingRequest& request = found->second.request;
  const bool is_it =
      request.mad.u8(fabric::kClassAt) == header.management_class && request.path.destination == from;
  return is_it ? found : entries_.end();
}

std::optional<WaitingRequest> WaitingRequests::answered(const fabric::MadHeader& header,
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
void WaitingRequests::remove_if(IsIt is_it) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (is_it(entry->second.request)) erase(entry);
    entry = next;
  }
}

void WaitingRequests::remove_port(uint64_t port) {
  remove_if([&](const WaitingRequest& request) { return request.port == port; });
}

void WaitingRequests::remove_agent(uint64_t port, uint32_t agent) {
  remove_if(
      [&](const WaitingRequest& request) { return request.port == port && request.header.agent == agent; });
}

}  // namespace verbena::agent
