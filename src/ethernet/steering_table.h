// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ethernet/flow_key.h"

namespace verbena::ethernet {

// What a rule is for (enum ibv_flow_attr_type): frames that match, or what no such rule took.
enum class RuleKind : uint8_t { kMatch, kAllDefault, kMulticastDefault };

// A rule of a steering table, part of what installed it. Not changed while it is in a table.
struct SteeringRule {
  RuleKind kind = RuleKind::kMatch;
  uint16_t priority = 0;  // 0 comes first
  bool traps = true;      // what it matched is not offered to later rules
  FlowKey value;
  FlowKey mask;
};

// Where frames go: the rules of one device. The first rule that matches takes the frame, in the order of
// their priorities; among rules of one priority the one that asks for more comes first, and rules that ask
// for the same get a copy each. What none of them takes goes to every default rule that is for it.
//
// Rules with the same mask stand in one hash table, so that a frame costs a look-up for each mask there is
// and not for each rule. Not thread-safe.
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

  std::vector<Group> groups_;  // in the order in which they are asked
  std::vector<SteeringRule*> defaults_;
  size_t count_ = 0;
};

}  // namespace verbena::ethernet
