// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/registrations.h"

#include <algorithm>
#include <cerrno>

#include "fabric/rmpp.h"
#include "protocol/mad_messages.h"

namespace verbena::agent {
namespace {

constexpr uint8_t kClasses = 0x50;   // MAX_MGMT_CLASS
constexpr uint8_t kVersions = 0x83;  // MAX_MGMT_VERSION
constexpr uint32_t kMostOui = 0xffffff;
constexpr uint8_t kMethodBits = 0x7f;

// The two classes of subnet management share their methods.
uint8_t slot_of(uint8_t management_class) {
  return management_class == fabric::kClassSubnDirected ? 0 : management_class;
}

}  // namespace

bool Registrations::can_be(const MadAgent& agent) {
  const uint8_t management_class = agent.management_class;
  const bool directed = management_class == fabric::kClassSubnDirected;
  if ((management_class >= kClasses && !directed) || agent.class_version >= kVersions) return false;
  if (fabric::is_vendor_with_oui(management_class) && (agent.oui == 0 || agent.oui > kMostOui)) return false;
  if (agent.rmpp_version > 1 || (agent.rmpp_version == 1 && !fabric::has_rmpp(management_class)))
    return false;
  return agent.queue_pair == (fabric::is_subnet_management(management_class) ? 0 : 1);
}

bool Registrations::is_free(const MadAgent& agent) const {
  return std::ranges::none_of(by_transaction_, [&](const auto& entry) {
    const MadAgent& other = entry.second;
    return other.device_index == agent.device_index &&
           slot_of(other.management_class) == slot_of(agent.management_class) &&
           other.class_version == agent.class_version && other.oui == agent.oui &&
           (other.methods & agent.methods).any();
  });
}

// That number, or the lowest that is free.
Result<uint32_t> Registrations::id_for(uint64_t port, std::optional<uint32_t> number) const {
  if (number) {
    if (*number >= protocol::kMostMadAgents) return fail(EINVAL);
    if (find(port, *number) != nullptr) return fail(EEXIST);
    return *number;
  }
  for (uint32_t id = 0; id < protocol::kMostMadAgents; ++id) {
    if (find(port, id) == nullptr) return id;
  }
  return fail(ENOMEM);
}

Result<uint32_t> Registrations::add(MadAgent agent, std::optional<uint32_t> number) {
  if (!fabric::is_vendor_with_oui(agent.management_class)) agent.oui = 0;
  if (!can_be(agent) || !is_free(agent)) return fail(EINVAL);
  const auto id = id_for(agent.port, number);
  if (!id) return id;
  agent.id = *id;
  do {
    agent.transaction = ++last_transaction_;
  } while (agent.transaction == 0 || by_transaction_.contains(agent.transaction));
  return by_transaction_.emplace(agent.transaction, agent).first->second.id;
}

Result<void> Registrations::remove(uint64_t port, uint32_t id) {
  const MadAgent* agent = find(port, id);
  if (agent == nullptr) return fail(ENOENT);
  by_transaction_.erase(agent->transaction);
  return {};
}

std::vector<uint32_t> Registrations::remove_port(uint64_t port) {
  std::vector<uint32_t> removed;
  std::erase_if(by_transaction_, [&](const auto& entry) {
    const bool goes = entry.second.port == port;
    if (goes) removed.push_back(entry.first);
    return goes;
  });
  return removed;
}

const MadAgent* Registrations::find(uint64_t port, uint32_t id) const {
  for (const auto& [transaction, agent] : by_transaction_) {
    if (agent.port == port && agent.id == id) return &agent;
  }
  return nullptr;
}

const MadAgent* Registrations::for_answer(uint64_t transaction) const {
  const auto found = by_transaction_.find(static_cast<uint32_t>(transaction >> 32));
  return found != by_transaction_.end() ? &found->second : nullptr;
}

const MadAgent* Registrations::for_request(uint32_t device_index, const fabric::MadHeader& header) const {
  for (const auto& [transaction, agent] : by_transaction_) {
    const bool is_it = agent.device_index == device_index &&
                       slot_of(agent.management_class) == slot_of(header.management_class) &&
                       agent.class_version == header.class_version && agent.oui == header.oui &&
                       agent.methods.test(header.method & kMethodBits);
    if (is_it) return &agent;
  }
  return nullptr;
}

}  // namespace verbena::agent
