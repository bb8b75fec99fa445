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

// An agent for management datagrams: what of them a program sends, and what it wants to receive. (The word is
// InfiniBand's, and has nothing to do with our daemon.)
struct MadAgent {
  uint64_t port = 0;  // the open port that it belongs to
  uint32_t id = 0;    // among those of that port
  uint32_t device_index = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t rmpp_version = 0;
  bool user_rmpp = false;  // it cuts its messages and puts them together itself
  uint8_t queue_pair = 1;
  uint32_t oui = 0;
  std::bitset<128> methods;  // of requests that it wants, from anybody; none: only answers to its own
  // The upper half of its requests' transaction IDs, by which answers find it.
  uint32_t transaction = 0;

  // Whether its long messages are cut and put together for it.
  bool has_whole_messages() const { return rmpp_version != 0 && !user_rmpp; }
};

// Which agents there are, and whose a datagram is: the kernel's rules (drivers/infiniband/core/mad.c). An
// answer is for the agent whose request it answers. A request is for the one that has registered for its
// class, version and method, and of vendor classes of range 2 for the OUI; there is at most one for each
// link. Pure.
class Registrations {
 public:
  // `first`: where transactions begin. Not where those of an agent of ours before this one did: other hosts
  // may still know them.
  explicit Registrations(uint32_t first = 0) : last_transaction_(first) {}

  // Fills in `id`, which is `number` where there is one, and `transaction`, and answers `id`. EINVAL, ENOMEM,
  // EEXIST: see control/protocol/mad_messages.h.
  Result<uint32_t> add(MadAgent agent, std::optional<uint32_t> number = std::nullopt);
  // ENOENT
  Result<void> remove(uint64_t port, uint32_t id);
  // The transactions of those that go.
  std::vector<uint32_t> remove_port(uint64_t port);

  const MadAgent* find(uint64_t port, uint32_t id) const;
  const MadAgent* for_answer(uint64_t transaction) const;
  const MadAgent* for_request(uint32_t device_index, const mad::MadHeader& header) const;
  size_t size() const { return by_transaction_.size(); }

 private:
  // Groups the agents that a request may be for. Each of them wants other methods, so a group has 128 at
  // most, whatever other programs have registered.
  struct Class {
    uint32_t device_index = 0;
    uint8_t management_class = 0;
    uint8_t class_version = 0;
    uint32_t oui = 0;
    friend auto operator<=>(const Class&, const Class&) = default;
  };
  static Class class_of(const MadAgent& agent);
  // The one that answers true to `is_it`; null: none does.
  template <class IsIt>
  const MadAgent* find_in(const Class& its, IsIt is_it) const;
  void erase(uint32_t transaction);

  static bool can_be(const MadAgent& agent);
  bool is_free(const MadAgent& agent) const;
  Result<uint32_t> id_for(uint64_t port, std::optional<uint32_t> number) const;

  uint32_t last_transaction_;
  std::map<uint32_t, MadAgent> by_transaction_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> by_number_;  // transactions by port and number
  std::set<std::pair<Class, uint32_t>> by_class_;                // of those that want requests
};

}  // namespace verbena::agent
