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

// However often a program wants it.
inline constexpr uint32_t kMaxRetries = 100;

// A request that a program has sent and that wants an answer.
struct WaitingRequest {
  uint64_t port = 0;
  protocol::UserMad header{};  // as the program sent it
  mad::Mad mad;                // its transaction ID made ours
  roce::Path path;             // to another host; destination zero: it did not leave this one
  Duration timeout{};
  uint32_t retries = 0;  // that are left
};

// The requests that wait for answers, of all ports: which of them an answer is for, and which are due to be
// repeated, or given up. Pure.
class WaitingRequests {
 public:
  // A port has no more; what it sends beyond waits in its socket.
  static constexpr size_t kMaxOfPort = 256;

  // False: there is one with this transaction ID.
  bool add(WaitingRequest request, TimePoint now);
  bool has_room(uint64_t port) const;
  // The request that it answers, which waits no longer: of the same transaction and class, and from where it
  // was sent to.
  std::optional<WaitingRequest> answered(const mad::MadHeader& header, const roce::Address& from);
  // Whether there is one.
  bool awaits(const mad::MadHeader& header, const roce::Address& from) const {
    return find(header, from) != entries_.end();
  }

  TimePoint deadline() const { return by_deadline_.empty() ? kNever : by_deadline_.begin()->first; }
  // The next one whose time is over: to be repeated, and waiting again, or with nothing left, and gone.
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
  // The one that it answers, or the end.
  Map::const_iterator find(const mad::MadHeader& header, const roce::Address& from) const;
  void erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_of(uint64_t port, IsIt is_it);

  Map entries_;
  std::set<std::pair<TimePoint, uint64_t>> by_deadline_;
  std::map<uint64_t, std::set<uint64_t>> of_port_;  // none empty
};

}  // namespace verbena::agent
