// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/time.h"
#include "control/protocol/mad_messages.h"
#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Maximum number of retries that a program can have.
inline constexpr uint32_t kMaxRetries = 100;

// A request of a program that awaits an answer.
struct WaitingRequest {
  uint64_t port = 0;
  protocol::UserMad header{};  // as in the program's datagram
  mad::Mad mad;                // with the agent's transaction ID
  roce::Path path;             // to another host; destination zero: the request did not leave this one
  Duration timeout{};
  uint32_t retries = 0;  // remaining
};

// The requests of all ports that await answers. Finds the request for an answer, and the requests that must
// be repeated or given up. Pure.
class WaitingRequests {
 public:
  // Maximum number of requests of a port. Further ones wait in its socket.
  static constexpr size_t kMaxOfPort = 256;

  // False: there is a request with this transaction ID already.
  bool add(WaitingRequest request, TimePoint now);
  bool has_room(uint64_t port) const;
  // Removes and returns the request that the datagram answers. They have the same transaction ID and class,
  // and the answer comes from the request's destination.
  std::optional<WaitingRequest> answered(const mad::MadHeader& header, const roce::Address& from);
  // Whether the datagram answers a request.
  bool awaits(const mad::MadHeader& header, const roce::Address& from) const {
    return find(header, from) != entries_.end();
  }

  TimePoint deadline() const { return by_deadline_.empty() ? kNever : by_deadline_.begin()->first; }
  // A request whose timeout has expired: it must be repeated, and waits again, or it has no retries left and
  // was removed.
  struct Due {
    WaitingRequest request;
    bool given_up = false;
  };
  std::optional<Due> take_due(TimePoint now);
  void remove_port(uint64_t port);
  void remove_agent(uint64_t port, uint32_t agent);

 private:
  struct Entry {
    WaitingRequest request;
    TimePoint deadline;
  };
  using Map = std::map<uint64_t, Entry>;  // by transaction ID
  // Returns the request that the datagram answers, or the end.
  Map::const_iterator find(const mad::MadHeader& header, const roce::Address& from) const;
  void erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_of(uint64_t port, IsIt is_it);

  Map entries_;
  std::set<std::pair<TimePoint, uint64_t>> by_deadline_;
  std::map<uint64_t, std::set<uint64_t>> of_port_;  // no empty sets
};

}  // namespace verbena::agent
