// SPDX-License-Identifier: Apache-2.0
#include "umad/agent_link.h"

#include <cerrno>
#include <utility>

#include <pthread.h>
#include <sys/stat.h>

#include "agent_client/link_table_file.h"
#include "base/only_one.h"

namespace verbena::umad {
namespace {

using protocol::MessageType;

constinit OnlyOne<AgentLink> current_link;

// By which the agent knows a port: its socket's, which is the same in every process that has it.
Result<uint64_t> number_of(int socket) {
  struct stat status {};
  if (::fstat(socket, &status) != 0) return fail(errno);
  return S_ISSOCK(status.st_mode) ? Result<uint64_t>(status.st_ino) : fail(ENOTTY);
}

}  // namespace

struct WatchForks {
  WatchForks() { ::pthread_atfork(nullptr, nullptr, AgentLink::after_fork_in_child); }
};

namespace {

[[maybe_unused]] const WatchForks watched;

}  // namespace

AgentLink::AgentLink() : session_(std::make_unique<agent_client::NamespaceDialer>(), {}) {}

AgentLink& AgentLink::current() {
  return current_link.get([] { return new AgentLink; });
}

// No lock is taken and nothing freed: another thread of the parent may have been in the middle of anything.
void AgentLink::after_fork_in_child() {
  AgentLink* inherited = current_link.forget();
  if (inherited != nullptr) inherited->session_.abandon();
}

template <class Reply, class Request>
Result<agent_client::Answer<Reply>> AgentLink::call(MessageType type, const Request& request,
                                                    size_t min_fds) {
  agent_client::AgentSession::Turn turn(session_);
  auto answer = turn.call<Reply>(type, request, min_fds);
  if (!answer) return fail(answer.error().code);
  return std::move(*answer);
}

Result<std::vector<agent_client::Link>> AgentLink::links() {
  auto answer = call<protocol::PlainReply>(MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
  if (!answer) return fail(answer.error().code);
  auto snapshot = agent_client::read_link_file(answer->fds[0].get());
  if (!snapshot) return fail(snapshot.error().code);
  return std::move(snapshot->links);
}

Result<protocol::MadPortReply> AgentLink::port(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer = call<protocol::MadPortReply>(MessageType::kMadGetPort, request);
  if (!answer) return fail(answer.error().code);
  return answer->message;
}

Result<UniqueFd> AgentLink::open(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer = call<protocol::PlainReply>(MessageType::kMadOpenPort, request, 1);
  if (!answer) return fail(answer.error().code);
  return std::move(answer->fds[0]);
}

Result<uint32_t> AgentLink::add_agent(int socket, protocol::MadRegisterRequest request) {
  const auto number = number_of(socket);
  if (!number) return fail(number.error().code);
  request.port = *number;
  auto answer = call<protocol::MadRegisterReply>(MessageType::kMadRegister, request);
  if (!answer) return fail(answer.error().code);
  return answer->message.agent;
}

Result<void> AgentLink::remove_agent(int socket, uint32_t agent) {
  const auto number = number_of(socket);
  if (!number) return fail(number.error().code);
  protocol::MadRegisterRequest request{};
  request.port = *number;
  request.agent = agent;
  auto answer = call<protocol::PlainReply>(MessageType::kMadUnregister, request);
  if (!answer) return fail(answer.error().code);
  return {};
}

}  // namespace verbena::umad
