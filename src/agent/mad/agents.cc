// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/agents.h"

#include "management/mad/rmpp.h"

namespace verbena::agent {

namespace {

constexpr uint8_t kClasses = 0x50;   // MAX_MGMT_CLASS
constexpr uint8_t kVersions = 0x83;  // MAX_MGMT_VERSION
constexpr uint32_t kMaxOui = 0xffffff;
constexpr uint8_t kMethodBits = 0x7f;

// Returns the class under which methods are registered. The two classes of subnet management share their
// methods.
uint8_t slot_of(uint8_t management_class) {
  return management_class == mad::kClassSubnDirected ? 0 : management_class;
}

}  // namespace

bool Registrations::can_be(const MadAgent& agent) {
  const uint8_t management_class = agent.management_class;
  const bool directed = management_class == mad::kClassSubnDirected;
  if ((management_class >= kClasses && !directed) || agent.class_version >= kVersions) return false;
  if (mad::is_vendor_with_oui(management_class) && (agent.oui == 0 || agent.oui > kMaxOui)) return false;
  if (agent.rmpp_version > 1 || (agent.rmpp_version == 1 && !mad::has_rmpp(management_class))) return false;
  return agent.queue_pair == (mad::is_subnet_management(management_class) ? 0 : 1);
}

Registrations::Class Registrations::class_of(const MadAgent& agent) {
  return {agent.device_index, slot_of(agent.management_class), agent.class_version, agent.oui};
}

template <class IsIt>
const MadAgent* Registrations::find_in(const Class& its, IsIt is_it) const {
  for (auto at = by_class_.lower_bound({its, 0}); at != by_class_.end() && at->first == its; ++at) {
    const MadAgent& agent = by_transaction_.at(at->second);
    if (is_it(agent)) return &agent;
  }
  return nullptr;
}

bool Registrations::is_free(const MadAgent& agent) const {
  return find_in(class_of(agent),
                 [&](const MadAgent& other) { return (other.methods & agent.methods).any(); }) == nullptr;
}

// Returns `number`, or without one the lowest free ID.
Result<uint32_t> Registrations::id_for(uint64_t port, std::optional<uint32_t> number) const {
  if (number) {
    if (*number >= protocol::kMaxMadAgents) return fail(EINVAL);
    if (find(port, *number) != nullptr) return fail(EEXIST);
    return *number;
  }
  for (uint32_t id = 0; id < protocol::kMaxMadAgents; ++id) {
    if (find(port, id) == nullptr) return id;
  }
  return fail(ENOMEM);
}

Result<uint32_t> Registrations::add(MadAgent agent, std::optional<uint32_t> number) {
  if (!mad::is_vendor_with_oui(agent.management_class)) agent.oui = 0;
  if (!can_be(agent) || !is_free(agent)) return fail(EINVAL);
  const auto id = id_for(agent.port, number);
  if (!id) return id;
  agent.id = *id;
  do {
    agent.transaction = transactions_.next();
  } while (agent.transaction == 0 || by_transaction_.contains(agent.transaction));
  by_number_.emplace(std::pair(agent.port, agent.id), agent.transaction);
  if (agent.methods.any()) by_class_.emplace(class_of(agent), agent.transaction);
  return by_transaction_.emplace(agent.transaction, agent).first->second.id;
}

void Registrations::erase(uint32_t transaction) {
  const auto found = by_transaction_.find(transaction);
  by_number_.erase({found->second.port, found->second.id});
  by_class_.erase({class_of(found->second), transaction});
  by_transaction_.erase(found);
}

Result<void> Registrations::remove(uint64_t port, uint32_t id) {
  const MadAgent* agent = find(port, id);
  if (agent == nullptr) return fail(ENOENT);
  erase(agent->transaction);
  return {};
}

std::vector<uint32_t> Registrations::remove_port(uint64_t port) {
  std::vector<uint32_t> removed;
  for (auto at = by_number_.lower_bound({port, 0}); at != by_number_.end() && at->first.first == port; ++at) {
    removed.push_back(at->second);
  }
  for (const uint32_t transaction : removed) erase(transaction);
  return removed;
}

const MadAgent* Registrations::find(uint64_t port, uint32_t id) const {
  const auto found = by_number_.find({port, id});
  return found != by_number_.end() ? &by_transaction_.at(found->second) : nullptr;
}

const MadAgent* Registrations::for_answer(uint64_t transaction) const {
  const auto found = by_transaction_.find(static_cast<uint32_t>(transaction >> 32));
  return found != by_transaction_.end() ? &found->second : nullptr;
}

const MadAgent* Registrations::for_request(uint32_t device_index, const mad::MadHeader& header) const {
  const Class its{device_index, slot_of(header.management_class), header.class_version, header.oui};
  return find_in(its, [&](const MadAgent& agent) { return agent.methods.test(header.method & kMethodBits); });
}

bool WaitingRequests::add(WaitingRequest request, TimePoint now) {
  const auto transaction = request.mad.get<uint64_t>(mad::kTransactionAt);
  if (entries_.contains(transaction)) return false;
  const TimePoint deadline = now + request.timeout;
  of_port_[request.port].emplace(deadline, transaction);
  entries_.emplace(transaction, Entry{std::move(request), deadline});
  return true;
}

TimePoint WaitingRequests::deadline(uint64_t port) const {
  const auto found = of_port_.find(port);
  return found != of_port_.end() ? found->second.begin()->first : kNever;
}

bool WaitingRequests::has_room(uint64_t port) const {
  const auto found = of_port_.find(port);
  return found == of_port_.end() || found->second.size() < kMaxOfPort;
}

void WaitingRequests::erase(Map::const_iterator entry) {
  const auto of_port = of_port_.find(entry->second.request.port);
  of_port->second.erase({entry->second.deadline, entry->first});
  if (of_port->second.empty()) of_port_.erase(of_port);
  entries_.erase(entry);
}

WaitingRequests::Map::const_iterator WaitingRequests::find(const mad::MadHeader& header,
                                                           const Correspondent& from) const {
  const auto found = entries_.find(header.transaction);
  if (found == entries_.end()) return found;
  const WaitingRequest& request = found->second.request;
  const bool is_it = request.mad.u8(mad::kClassAt) == header.management_class && from.is_at(request.to);
  return is_it ? found : entries_.end();
}

std::optional<WaitingRequest> WaitingRequests::answered(const mad::MadHeader& header,
                                                        const Correspondent& from) {
  const auto found = find(header, from);
  if (found == entries_.end()) return std::nullopt;
  WaitingRequest taken = found->second.request;
  erase(found);
  return taken;
}

std::optional<WaitingRequests::Due> WaitingRequests::take_due(uint64_t port, TimePoint now) {
  if (deadline(port) > now) return std::nullopt;
  auto& of_port = of_port_.at(port);
  const auto found = entries_.find(of_port.begin()->second);
  Entry& entry = found->second;
  if (entry.request.retries == 0) {
    Due due{entry.request, true};
    erase(found);
    return due;
  }
  --entry.request.retries;
  auto node = of_port.extract(of_port.begin());
  node.value().first = entry.deadline = now + entry.request.timeout;
  of_port.insert(std::move(node));
  return Due{entry.request, false};
}

template <class IsIt>
void WaitingRequests::remove_of(uint64_t port, IsIt is_it) {
  const auto of_port = of_port_.find(port);
  if (of_port == of_port_.end()) return;
  for (const auto& [deadline, transaction] : std::set(of_port->second)) {
    const auto entry = entries_.find(transaction);
    if (is_it(entry->second.request)) erase(entry);
  }
}

void WaitingRequests::remove_port(uint64_t port) {
  remove_of(port, [](const WaitingRequest&) { return true; });
}

void WaitingRequests::remove_agent(uint64_t port, uint32_t agent) {
  remove_of(port, [&](const WaitingRequest& request) { return request.header.agent == agent; });
}

}  // namespace verbena::agent
