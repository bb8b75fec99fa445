// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibumad/open_ports.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/mutex_at_fork.h"
#include "base/only_one.h"
#include "management/mad/mad.h"

namespace verbena::umad {
namespace {

// Limits the awaited responses of a program that never reads them.
constexpr size_t kMaxAwaited = 4096;

constinit OnlyOne<OpenPorts> current_ports;

bool is_response(ConstBytes mad) {
  const auto method = static_cast<uint8_t>(mad[mad::kMethodAt]);
  return (method & mad::kMethodResponse) != 0 || method == mad::kMethodTrapRepress;
}

// The lock is held during fork(), so that no other thread is changing the table that the child inherits.
[[maybe_unused]] const int ports_watched =
    lock_at_fork<[]() -> std::mutex& { return OpenPorts::current().mutex(); }>();

OpenedPort::AnswerKey key_of(const protocol::UserMad& header, ConstBytes mad) {
  const auto transaction = load_be<uint64_t>(&mad[mad::kTransactionAt]);
  return {header.agent, static_cast<uint8_t>(mad[mad::kClassAt]), static_cast<uint32_t>(transaction)};
}

}  // namespace

OpenPorts& OpenPorts::current() {
  return current_ports.get();
}

void OpenPorts::add(int socket, OpenedPort port) {
  const std::lock_guard lock(mutex_);
  ports_.insert_or_assign(socket, std::move(port));
}

void OpenPorts::remove(int socket) {
  const std::lock_guard lock(mutex_);
  ports_.erase(socket);
}

void OpenPorts::renumber(int socket, uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ports_.find(socket); found != ports_.end()) {
    found->second.number = number;
    found->second.awaited.clear();
  }
}

void OpenPorts::set_lost(int socket, bool is_lost) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ports_.find(socket); found != ports_.end()) found->second.is_lost = is_lost;
}

std::optional<OpenedPort> OpenPorts::find(int socket) {
  const std::lock_guard lock(mutex_);
  const auto found = ports_.find(socket);
  return found != ports_.end() ? std::optional(found->second) : std::nullopt;
}

bool OpenPorts::takes_long(int socket) {
  const std::lock_guard lock(mutex_);
  const auto found = ports_.find(socket);
  return found != ports_.end() && found->second.takes_long;
}

bool OpenPorts::cuts_for(int socket, uint32_t agent) {
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(socket);
  if (port == ports_.end()) return false;
  const auto found = port->second.agents.find(agent);
  return found != port->second.agents.end() && found->second.rmpp_version != 0 &&
         (found->second.flags & protocol::kMadUserRmpp) == 0;
}

void OpenPorts::add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request) {
  const std::lock_guard lock(mutex_);
  if (const auto port = ports_.find(socket); port != ports_.end()) port->second.agents[agent] = request;
}

void OpenPorts::remove_agent(int socket, uint32_t agent) {
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(socket);
  if (port == ports_.end()) return;
  port->second.agents.erase(agent);
  std::erase_if(port->second.awaited, [&](const auto& entry) { return std::get<0>(entry.first) == agent; });
}

void OpenPorts::sent(int socket, const protocol::UserMad& header, ConstBytes mad) {
  if (header.timeout_ms == 0 || is_response(mad)) return;
  AwaitedAnswer awaited{header, {}};
  std::copy_n(mad.begin(), std::min(mad.size(), awaited.mad.size()), awaited.mad.begin());
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(socket);
  if (port == ports_.end() || port->second.awaited.size() >= kMaxAwaited) return;
  port->second.awaited[key_of(header, mad)] = awaited;
}

void OpenPorts::not_sent(int socket, const protocol::UserMad& header, ConstBytes mad) {
  const std::lock_guard lock(mutex_);
  if (const auto port = ports_.find(socket); port != ports_.end()) {
    port->second.awaited.erase(key_of(header, mad));
  }
}

void OpenPorts::received(int socket, const protocol::UserMad& header, ConstBytes mad) {
  if (mad.size() < mad::kMadHeaderBytes || (header.status != ETIMEDOUT && !is_response(mad))) return;
  not_sent(socket, header, mad);
}

}  // namespace verbena::umad
