// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibumad/agent_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/only_one.h"
#include "base/plain_calls.h"
#include "control/model/link.h"
#include "control/model/message_socket.h"
#include "libraries/libibumad/epoll_sets.h"

namespace verbena::umad {
namespace {

using protocol::MessageType;

constinit OnlyOne<AgentLink> current_link;

// Returns the agent's number for a port: the inode of its socket, which is the same in every process.
Result<uint64_t> number_of(int socket) {
  struct stat status {};
  if (::fstat(socket, &status) != 0) return fail(errno);
  return S_ISSOCK(status.st_mode) ? Result<uint64_t>(status.st_ino) : fail(ENOTTY);
}

// How long a call waits for the next agent, if none can be started.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr int kPauseMs = 20;

bool is_at_end(int socket) {
  pollfd entry{socket, 0, 0};
  return plain_poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

void give_back(int socket, const AwaitedAnswer& awaited) {
  std::array<std::byte, sizeof awaited.header + sizeof awaited.mad> message;
  protocol::UserMad header = awaited.header;
  header.status = ETIMEDOUT;
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, awaited.mad.data(), awaited.mad.size());
  [[maybe_unused]] const auto sent = control::send_message(socket, message);
}

}  // namespace

struct WatchForks {
  WatchForks() { ::pthread_atfork(nullptr, nullptr, AgentLink::after_fork_in_child); }
};

namespace {

[[maybe_unused]] const WatchForks watched;

}  // namespace

AgentLink::AgentLink() : session_(std::make_unique<control::NamespaceDialer>(), {}) {}

AgentLink& AgentLink::current() {
  return current_link.get([] { return new AgentLink; });
}

// Takes no lock and frees nothing: other threads of the parent may have been in any code at the fork.
void AgentLink::after_fork_in_child() {
  AgentLink* inherited = current_link.forget();
  if (inherited != nullptr) inherited->session_.abandon();
}

template <class Reply, class Request>
Result<control::Answer<Reply>> AgentLink::call_in(Turn& turn, MessageType type, const Request& request,
                                                  size_t min_fds) {
  auto answer = turn.call<Reply>(type, request, min_fds);
  if (!answer) return fail(answer.error().code);
  return std::move(*answer);
}

template <class Reply, class Request>
Result<control::Answer<Reply>> AgentLink::call(MessageType type, const Request& request, size_t min_fds) {
  Turn turn(session_);
  return call_in<Reply>(turn, type, request, min_fds);
}

Result<std::vector<control::Link>> AgentLink::links_in(Turn& turn) {
  auto answer = call_in(turn, MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
  if (!answer) return fail(answer.error().code);
  auto snapshot = control::read_link_file(answer->fds[0].get());
  if (!snapshot) return fail(snapshot.error().code);
  return std::move(snapshot->links);
}

Result<std::vector<control::Link>> AgentLink::links() {
  Turn turn(session_);
  return links_in(turn);
}

Result<protocol::MadPortReply> AgentLink::port(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer = call<protocol::MadPortReply>(MessageType::kMadGetPort, request);
  if (!answer) return fail(answer.error().code);
  return answer->message;
}

// ---- ports

Result<AgentLink::Opened> AgentLink::open_in(Turn& turn, uint32_t device_index) {
  if (const auto reached = turn.connect(); !reached) return fail(reached.error().code);
  const bool takes_long = (turn.capabilities() & protocol::kServesLongMads) != 0;
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  request.flags = takes_long ? protocol::kMadLongMessages : 0;
  auto answer = call_in(turn, MessageType::kMadOpenPort, request, 1);
  if (!answer) return fail(answer.error().code);
  const auto number = number_of(answer->fds[0].get());
  if (!number) return fail(number.error().code);
  return Opened{std::move(answer->fds[0]), *number, takes_long};
}

Result<UniqueFd> AgentLink::open(const control::Link& link) {
  Turn turn(session_);
  auto opened = open_in(turn, link.device_index);
  if (!opened) return fail(opened.error().code);
  OpenedPort port;
  port.number = opened->number;
  port.device = link.name;
  port.takes_long = opened->takes_long;
  OpenPorts::current().add(opened->socket.get(), std::move(port));
  return std::move(opened->socket);
}

Result<void> AgentLink::register_in(Turn& turn, uint64_t number, const OpenedPort& port) {
  for (const auto& [agent, registered] : port.agents) {
    protocol::MadRegisterRequest request = registered;
    request.port = number;
    request.agent = agent;
    request.flags |= protocol::kMadKeepsNumber;
    const auto added = call_in<protocol::MadRegisterReply>(turn, MessageType::kMadRegister, request);
    if (!added) return fail(added.error().code);
  }
  return {};
}

Result<void> AgentLink::revive(int socket) {
  OpenPorts& ports = OpenPorts::current();
  const auto port = ports.find(socket);
  const TimePoint end = MonotonicClock::now() + (port && !port->is_lost ? kPatience : Duration::zero());
  for (;;) {
    auto revived = revive_once(socket);
    const bool is_over = !revived && (revived.error().code != ECONNREFUSED || MonotonicClock::now() >= end);
    if (revived || is_over) {
      ports.set_lost(socket, is_over);
      return revived ? revived : fail(EIO);
    }
    plain_poll(nullptr, 0, kPauseMs);
  }
}

// Replaces the file behind the program's descriptor, and keeps the flags that the program has set. Threads
// that wait on the old file have seen its end.
Result<void> AgentLink::revive_once(int socket) {
  Turn turn(session_);
  const auto port = OpenPorts::current().find(socket);
  const auto number = number_of(socket);
  if (!port || !number || *number != port->number) return fail(EIO);
  if (!is_at_end(socket)) return {};  // another thread was here before us
  const auto links = links_in(turn);
  if (!links) return fail(links.error().code);
  const auto link = std::ranges::find(*links, port->device, &control::Link::name);
  if (link == links->end()) return fail(EIO);
  auto opened = open_in(turn, link->device_index);
  if (!opened || !opened->takes_long) return fail(EIO);
  if (!register_in(turn, opened->number, *port)) return fail(EIO);
  for (const auto& [key, awaited] : port->awaited) give_back(opened->socket.get(), awaited);
  const int descriptor_flags = ::fcntl(socket, F_GETFD), file_flags = ::fcntl(socket, F_GETFL);
  const bool is_same = number_of(socket) == number;
  if (!is_same || descriptor_flags < 0 || file_flags < 0) return fail(EIO);
  ::fcntl(opened->socket.get(), F_SETFL, file_flags);
  const int closes = (descriptor_flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  const EpollSets sets(socket);
  if (::dup3(opened->socket.get(), socket, closes) < 0) return fail(EIO);
  OpenPorts::current().renumber(socket, opened->number);
  return {};
}

// ---- agents of ports

Result<uint32_t> AgentLink::add_agent(int socket, protocol::MadRegisterRequest request) {
  for (bool is_revived = false;; is_revived = true) {
    const auto number = number_of(socket);
    if (!number) return fail(number.error().code);
    request.port = *number;
    auto answer = call<protocol::MadRegisterReply>(MessageType::kMadRegister, request);
    if (answer) {
      OpenPorts::current().add_agent(socket, answer->message.agent, request);
      return answer->message.agent;
    }
    // EBADF: the agent does not know the port, because it is the successor of the agent that did.
    const bool is_unknown = answer.error().code == EBADF && is_at_end(socket);
    if (!is_unknown || is_revived || !revive(socket)) return fail(answer.error().code);
  }
}

// Succeeds also if the agent has ended: the next agent will not learn of this MAD agent.
Result<void> AgentLink::remove_agent(int socket, uint32_t agent) {
  const auto number = number_of(socket);
  if (!number) return fail(number.error().code);
  protocol::MadRegisterRequest request{};
  request.port = *number;
  request.agent = agent;
  const auto port = OpenPorts::current().find(socket);
  const bool is_known = port && port->agents.contains(agent);
  OpenPorts::current().remove_agent(socket, agent);
  auto answer = call<protocol::PlainReply>(MessageType::kMadUnregister, request);
  if (!answer && !(is_known && is_at_end(socket))) return fail(answer.error().code);
  return {};
}

}  // namespace verbena::umad
