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
#include "management/mad/mad.h"

namespace verbena::agent {

// A program's registration for management datagrams of one class: InfiniBand's agent, not the Verbena agent.
struct MadAgent {
  uint64_t port = 0;  // the open port that it belongs to
  uint32_t id = 0;    // unique within the port
  uint32_t device_index = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t rmpp_version = 0;
  bool user_rmpp = false;  // the program splits and reassembles its messages itself
  uint8_t queue_pair = 1;
  uint32_t oui = 0;
  std::bitset<128> methods;  // of the requests that it receives; none: it receives only answers
  // The upper half of the transaction IDs of the agent's requests and their answers.
  uint32_t transaction = 0;

  // Returns whether the dispatcher splits and reassembles this agent's long messages.
  bool has_whole_messages() const { return rmpp_version != 0 && !user_rmpp; }
};

// Holds the registered agents, and assigns each datagram to one of them, as the kernel does
// (drivers/infiniband/core/mad.c). An answer goes to the agent whose request it answers. A request goes to
// the agent that has registered for its class, version and method, and for vendor classes of range 2 for its
// OUI; each link has at most one such agent. Pure.
class Registrations {
 public:
  // `first`: the number before the first MadAgent::transaction. It must differ from a former Verbena agent's:
  // other hosts may still answer requests with those transaction IDs.
  explicit Registrations(uint32_t first = 0) : last_transaction_(first) {}

  // Adds an agent with a new MadAgent::transaction and returns the agent's ID: `number`, or without it the
  // lowest free ID of the port. Errors EINVAL, ENOMEM, EEXIST: see control/protocol/mad_messages.h.
  Result<uint32_t> add(MadAgent agent, std::optional<uint32_t> number = std::nullopt);
  // Removes an agent. Fails with ENOENT if the port has no agent with this ID.
  Result<void> remove(uint64_t port, uint32_t id);
  // Removes the agents of a port, and returns the MadAgent::transaction of each.
  std::vector<uint32_t> remove_port(uint64_t port);

  // find(), for_answer() and for_request() return nullptr if there is no such agent. `transaction`: the
  // answer's transaction ID, 64 bits.
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

  uint32_t last_transaction_;
  std::map<uint32_t, MadAgent> by_transaction_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> by_number_;  // transactions by port and number
  std::set<std::pair<Class, uint32_t>> by_class_;                // of agents that want requests
};

}  // namespace verbena::agent
