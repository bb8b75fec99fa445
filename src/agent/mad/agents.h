// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "control/protocol/mad_messages.h"
#include "management/cm/numbers.h"
#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// A program's registration for management datagrams of one class. InfiniBand calls this an agent; it is not
// the Verbena agent.
struct MadAgent {
  uint64_t port = 0;  // number of its OpenPort
  uint32_t id = 0;    // unique within the port
  uint32_t device_index = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t rmpp_version = 0;
  bool user_rmpp = false;  // the program splits and reassembles its messages itself
  uint8_t queue_pair = 1;
  uint32_t oui = 0;          // of a vendor class of range 2; else 0
  std::bitset<128> methods;  // of the requests that it receives; none: it receives only answers
  // The upper half of the transaction IDs of the agent's requests and their answers.
  uint32_t transaction = 0;

  // Returns whether the dispatcher splits and reassembles this agent's long messages.
  bool has_whole_messages() const { return rmpp_version != 0 && !user_rmpp; }
};

// Holds the registered agents, and assigns each datagram to one of them, as the kernel does
// (drivers/infiniband/core/mad.c). An answer goes to the agent whose request it answers. A request goes to
// the agent that has registered for its class, version and method. For vendor classes of range 2, the OUI
// must match, too. On each link, at most one agent can be registered for a given request. Pure: no system
// calls.
class Registrations {
 public:
  // `secret`: secret random number that MadAgent::transaction is derived from. A program that knows its own
  // transaction IDs cannot guess those of others, and so cannot forge answers to their requests.
  explicit Registrations(uint64_t secret = 0) : transactions_(secret, std::nullopt) {}

  // Adds an agent with a new MadAgent::transaction and returns the agent's ID: `number`, or without it the
  // lowest free ID of the port. Errors EINVAL, ENOMEM, EEXIST: see control/protocol/mad_messages.h.
  Result<uint32_t> add(MadAgent agent, std::optional<uint32_t> number = std::nullopt);
  // Removes an agent. Fails with ENOENT if the port has no agent with this ID.
  Result<void> remove(uint64_t port, uint32_t id);
  // Removes the agents of a port, and returns the MadAgent::transaction of each.
  std::vector<uint32_t> remove_port(uint64_t port);

  // find() returns the port's agent with this ID. for_answer() returns the agent whose request had this
  // 64-bit transaction ID. for_request() returns the agent that is registered for the request. Each returns
  // nullptr if there is no such agent. The pointer is valid until the agent is removed.
  const MadAgent* find(uint64_t port, uint32_t id) const;
  const MadAgent* for_answer(uint64_t transaction) const;
  const MadAgent* for_request(uint32_t device_index, const mad::MadHeader& header) const;
  size_t size() const { return by_transaction_.size(); }

 private:
  // Key of a group of agents, one of which gets a request. Their methods are disjoint: at most 128 agents.
  struct Class {
    uint32_t device_index = 0;
    uint8_t management_class = 0;
    uint8_t class_version = 0;
    uint32_t oui = 0;
    friend auto operator<=>(const Class&, const Class&) = default;
  };
  static Class class_of(const MadAgent& agent);
  // Returns the agent for which `is_it` is true, or nullptr.
  template <class IsIt>
  const MadAgent* find_in(const Class& its, IsIt is_it) const;
  void erase(uint32_t transaction);

  static bool can_be(const MadAgent& agent);
  bool is_free(const MadAgent& agent) const;
  Result<uint32_t> id_for(uint64_t port, std::optional<uint32_t> number) const;

  cm::IdSequence transactions_;
  std::map<uint32_t, MadAgent> by_transaction_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> by_number_;  // transactions by port and number
  std::set<std::pair<Class, uint32_t>> by_class_;                // only agents with `methods`
};

// The sender or the receiver of a management datagram.
struct Correspondent {
  uint16_t lid = 0;   // 0: it has none
  roce::Path path{};  // path to the correspondent; destination zero: this link or its simulated switch
  bool is_here() const { return path.destination.is_zero(); }
  // Compares addresses of other hosts. On this link, compares LIDs.
  bool is_at(const Correspondent& other) const {
    return path.destination == other.path.destination && (!is_here() || lid == other.lid);
  }
};

// Maximum number of retries of one request. A program that asks for more gets this number.
inline constexpr uint32_t kMaxRetries = 100;

// A request of a program that awaits an answer.
struct WaitingRequest {
  uint64_t port = 0;
  protocol::UserMad header{};  // the header of the program's datagram
  mad::Mad mad;                // its transaction ID has MadAgent::transaction as the upper half
  Correspondent to;
  Duration timeout{};
  uint32_t retries = 0;  // remaining
};

// Holds the requests of all ports that await answers. Finds the request to which an arrived answer belongs,
// and requests whose timeout has expired. Pure: gets the time as a parameter.
class WaitingRequests {
 public:
  // Maximum number of waiting requests of a port. Further datagrams of the program wait in the port's socket.
  static constexpr size_t kMaxOfPort = 256;

  // Adds a request whose timeout starts at `now`. Returns false if its transaction ID is waiting already.
  bool add(WaitingRequest request, TimePoint now);
  bool has_room(uint64_t port) const;
  // Removes and returns the request that the datagram answers, or returns nullopt. An answer has the
  // transaction ID and class of the request, and comes from the request's destination.
  std::optional<WaitingRequest> answered(const mad::MadHeader& header, const Correspondent& from);
  // Returns whether answered() would return a request.
  bool awaits(const mad::MadHeader& header, const Correspondent& from) const {
    return find(header, from) != entries_.end();
  }

  // Returns when the port's next timeout expires, or kNever if none of its requests is waiting.
  TimePoint deadline(uint64_t port) const;
  // A request whose timeout has expired. If `given_up` is false, the caller repeats the request, which goes
  // on waiting. Otherwise the request had no retries left and was removed.
  struct Due {
    WaitingRequest request;
    bool given_up = false;
  };
  // Returns one request of the port whose timeout has expired at `now`, or nullopt if there is none. If the
  // request has retries left, its timeout starts again at `now`.
  std::optional<Due> take_due(uint64_t port, TimePoint now);
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
  Map::const_iterator find(const mad::MadHeader& header, const Correspondent& from) const;
  void erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_of(uint64_t port, IsIt is_it);

  Map entries_;
  std::map<uint64_t, std::set<std::pair<TimePoint, uint64_t>>> of_port_;  // by deadline; no empty sets
};

}  // namespace verbena::agent
