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

// Maximum number of retries of one request. A program that asks for more gets this number.
inline constexpr uint32_t kMaxRetries = 100;

// A request of a program that awaits an answer.
struct WaitingRequest {
  uint64_t port = 0;
  protocol::UserMad header{};  // the header of the program's datagram
  mad::Mad mad;                // its transaction ID has MadAgent::transaction as the upper half
  roce::Path path;             // to another host; destination zero: the request did not leave this host
  Duration timeout{};
  uint32_t retries = 0;  // remaining
};

// Holds the requests of all ports that await answers. Finds the request for an answer, and the requests that
// must be repeated or given up. Pure: gets the time as a parameter.
class WaitingRequests {
 public:
  // Maximum number of waiting requests of a port. Further datagrams of the program wait in the port's socket.
  static constexpr size_t kMaxOfPort = 256;

  // Adds a request whose timeout starts at `now`. Returns false if its transaction ID is waiting already.
  bool add(WaitingRequest request, TimePoint now);
  bool has_room(uint64_t port) const;
  // Removes and returns the request that the datagram answers, or returns nullopt. An answer has the
  // transaction ID and class of the request, and comes from the request's destination.
  std::optional<WaitingRequest> answered(const mad::MadHeader& header, const roce::Address& from);
  // Returns whether answered() would return a request.
  bool awaits(const mad::MadHeader& header, const roce::Address& from) const {
    return find(header, from) != entries_.end();
  }

  // Returns when the next timeout expires, or kNever if no request is waiting.
  TimePoint deadline() const { return by_deadline_.empty() ? kNever : by_deadline_.begin()->first; }
  // A request whose timeout has expired. If `given_up` is false, the caller repeats the request, which goes
  // on waiting. Otherwise the request had no retries left and was removed.
  struct Due {
    WaitingRequest request;
    bool given_up = false;
  };
  // Returns one request whose timeout has expired at `now`, or nullopt if there is none.
  std::optional<Due> take_due(TimePoint now);
  // Remove the waiting requests of a port, or of one MAD agent of a port.
  void remove_port(uint64_t port);
  void remove_agent(uint64_t port, uint32_t agent);

 private:
  struct Entry {
    WaitingRequest request;
    TimePoint deadline;
  };
  using Map = std::map<uint64_t, Entry>;  // by transaction ID
  // Returns the request that the datagram answers, or entries_.end().
  Map::const_iterator find(const mad::MadHeader& header, const roce::Address& from) const;
  void erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_of(uint64_t port, IsIt is_it);

  Map entries_;
  std::set<std::pair<TimePoint, uint64_t>> by_deadline_;
  std::map<uint64_t, std::set<uint64_t>> of_port_;  // no empty sets
};

}  // namespace verbena::agent
