// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/steering_table.h"

#include <algorithm>
#include <tuple>

namespace verbena::ethernet {

void SteeringTable::add(SteeringRule& rule) {
  if (rule.kind != RuleKind::kMatch) {
    defaults_.push_back(&rule);
    ++count_;
    return;
  }
  const uint32_t bits = weight(rule.mask);
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.priority == rule.priority && g.mask == rule.mask;
  });
  if (group == groups_.end()) {
    group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.priority > rule.priority || (g.priority == rule.priority && g.weight < bits);
    });
    group = groups_.insert(group, Group{rule.priority, bits, rule.mask, {}});
  }
  group->rules[rule.value & rule.mask].push_back(&rule);
  ++count_;
}

void SteeringTable::remove(SteeringRule& rule) {
  if (rule.kind != RuleKind::kMatch) {
    count_ -= std::erase(defaults_, &rule);
    return;
  }
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.priority == rule.priority && g.mask == rule.mask;
  });
  if (group == groups_.end()) return;
  const auto found = group->rules.find(rule.value & rule.mask);
  if (found == group->rules.end()) return;
  count_ -= std::erase(found->second, &rule);
  if (found->second.empty()) group->rules.erase(found);
  if (group->rules.empty()) groups_.erase(group);
}

}  // namespace verbena::ethernet
