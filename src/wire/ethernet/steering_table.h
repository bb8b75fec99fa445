// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

// What a rule is for (enum ibv_flow_attr_type): frames that match, or frames that no such rule took.
enum class RuleKind : uint8_t { kMatch, kAllDefault, kMulticastDefault };

// A rule of a steering table, part of what installed it. Not changed while it is in a table.
struct SteeringRule {
  RuleKind kind = RuleKind::kMatch;
  uint16_t priority = 0;  // 0 comes first
  bool traps = true;      // what it matched is not offered to later rules
  FlowKey value;
  FlowKey mask;
};

// Where frames go: the rules of one device. The first rule that matches takes the frame, in order of
// priority. Among rules of one priority the more specific one comes first, and rules that ask for the same
// get a copy each. A frame that no rule takes goes to every default rule that accepts it.
//
// Rules with the same mask are in one hash table, so that a frame costs one look-up for each mask and not one
// for each rule. Not thread-safe.
class SteeringTable {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  void add(SteeringRule& rule);
  void remove(SteeringRule& rule);

  // Calls visit(rule) for each rule that gets the frame.
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

  // Calls visit(rule) for each rule there is.
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

  std::vector<Group> groups_;  // in the order in which they are tried
  std::vector<SteeringRule*> defaults_;
  size_t count_ = 0;
};

}  // namespace verbena::ethernet
