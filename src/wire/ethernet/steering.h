// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

// The frames that a rule is for (enum ibv_flow_attr_type). kMatch: frames that match value and mask.
// kAllDefault and kMulticastDefault: all frames, or all multicast frames, that no kMatch rule has taken.
enum class RuleKind : uint8_t { kMatch, kAllDefault, kMulticastDefault };

// A rule of a steering table; callers derive their rule objects from it. REQUIRES: the rule does not change
// while it is in a table
struct SteeringRule {
  RuleKind kind = RuleKind::kMatch;
  uint16_t priority = 0;  // of a kMatch rule; 0 is tried first
  bool traps = true;      // frames that this rule matched are not offered to later rules
  FlowKey value;
  FlowKey mask;
};

// Finds the flow steering rules that get a frame, among the rules of one device. kMatch rules are tried in
// order of priority; within one priority, rules whose mask has more bits come first. The first match takes
// the frame, unless its `traps` is false. Rules of equal priority, mask and value get a copy each. A frame
// that no rule takes goes to all default rules that accept it.
//
// Rules with the same mask share a hash table: a frame costs one look-up per mask, not one per rule. Not
// thread-safe.
class SteeringTable {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  void add(SteeringRule& rule);
  void remove(SteeringRule& rule);

  // Calls visit(rule) for each rule that gets a frame with this key.
  template <class Visit>
  void steer(const FlowKey& key, Visit visit) const {
    for (const Group& group : groups_) {
      const auto found = group.rules.find(key & group.mask);
      if (found == group.rules.end()) continue;
      bool trapped = false;
      for (SteeringRule* rule : found->second) {
        visit(*rule);
        trapped |= rule->traps;
      }
      if (trapped) return;
    }
    for (SteeringRule* rule : defaults_) {
      if (rule->kind == RuleKind::kAllDefault || key.is_multicast()) visit(*rule);
    }
  }

  // Calls visit(rule) for each rule.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Group& group : groups_) {
      for (const auto& [value, rules] : group.rules) {
        for (const SteeringRule* rule : rules) visit(*rule);
      }
    }
    for (const SteeringRule* rule : defaults_) visit(*rule);
  }

 private:
  struct Group {
    uint16_t priority;
    uint32_t weight;
    FlowKey mask;
    std::unordered_map<FlowKey, std::vector<SteeringRule*>, FlowKeyHash> rules;
  };

  std::vector<Group> groups_;  // in matching order
  std::vector<SteeringRule*> defaults_;
  size_t count_ = 0;
};

inline constexpr size_t kHashKeyBytes = 40;

// Returns the Toeplitz hash, as in receive side scaling (RSS), of up to the first 36 bytes of `input`.
uint32_t toeplitz(const std::array<uint8_t, kHashKeyBytes>& key, ConstBytes input);

// The header fields to hash, in this order: source address, destination address, source and destination port.
enum HashField : uint8_t {
  kHashSourceIpv4 = 1,
  kHashDestinationIpv4 = 2,
  kHashSourceIpv6 = 4,
  kHashDestinationIpv6 = 8,
  kHashSourceTcp = 16,
  kHashDestinationTcp = 32,
  kHashSourceUdp = 64,
  kHashDestinationUdp = 128,
};

// Returns the hash over the `fields` (HashField bits) that the frame has; 0 if the frame has none of them.
uint32_t receive_hash(const std::array<uint8_t, kHashKeyBytes>& key, uint8_t fields, const FlowKey& frame);

}  // namespace verbena::ethernet
