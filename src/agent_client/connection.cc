// SPDX-License-Identifier: Apache-2.0
#include "agent_client/connection.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "agent_client/agent_starter.h"
#include "base/log.h"
#include "protocol/text.h"

namespace verbena::agent_client {
namespace {

constexpr Duration kRootGrace = std::chrono::seconds(1);
constexpr Duration kRetryInterval = std::chrono::milliseconds(5);
constexpr Duration kStartInterval = std::chrono::milliseconds(500);
// How long a receive waits in the kernel, which is a system call less than to wait in poll(2).
constexpr Duration kReceiveTimeout = std::chrono::seconds(1);

// False when the deadline came first.
bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - MonotonicClock::now();
    if (left <= Duration::zero()) return false;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, static_cast<int>(ms)) > 0) return true;
  }
}

Result<UniqueFd> connect_to(uid_t uid, uid_t& server) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  const AgentAddress address(uid);
  if (::connect(socket.get(), address.address(), address.length) != 0) return fail(errno);
  const timeval timeout{std::chrono::duration_cast<std::chrono::seconds>(kReceiveTimeout).count(), 0};
  if (::fcntl(socket.get(), F_SETFL, O_RDWR) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0) {
    return fail(errno);
  }
  const auto peer = peer_credentials(socket.get());
  if (!peer) return fail(peer.error().code);
  if (peer->uid != 0 && peer->uid != ::geteuid()) {
    log_warning("the name of the agent of user {} is taken by user {}: not trusted", uid, peer->uid);
    return fail(EPERM);
  }
  server = peer->uid;
  return socket;
}

}  // namespace

Duration grace_for_next(uid_t former_agent) {
  return former_agent == 0 && ::geteuid() != 0 ? kRootGrace : Duration::zero();
}

AdminResult<Answer<protocol::HelloReply>> Connection::say_hello(const UniqueFd& vault, TimePoint deadline) {
  protocol::HelloRequest hello{};
  protocol::store_text(hello.program, program_invocation_short_name);
  const int offered = vault.get();
  const auto say = [&] {
    return call<protocol::HelloReply>(protocol::MessageType::kHello, hello, 2, deadline,
                                      std::span<const int>(&offered, offered >= 0 ? 1 : 0));
  };
  auto answer = say();
  if (answer || answer.error().code != EPROTONOSUPPORT) return answer;
  // The agent is of the version before and cannot know ours: it says which it speaks.
  const bool older = agents_version_ < version_ && protocol::is_neighbour(agents_version_);
  if (older) {
    version_ = agents_version_;
    answer = say();
    if (answer) {
      answer->message.capabilities = protocol::kServesXrcDomains | protocol::kServesConnectionManagement;
      return answer;
    }
  }
  static std::atomic<bool> said{false};  // and not again whenever we look for an agent
  if (!said.exchange(true)) log_error("no RDMA devices: {}", answer.error().text);
  return answer;
}

Result<Connection> Connection::open() {
  uid_t server = 0;
  auto socket = connect_to(0, server);
  const uid_t own = ::geteuid();
  if (!socket && own != 0) {
    // EAGAIN: root's agent is there, and busy. Do not go past it to another.
    if (socket.error().code == EAGAIN) return fail(EAGAIN);
    socket = connect_to(own, server);
  }
  if (!socket) return fail(socket.error().code);
  return Connection(std::move(*socket), server);
}

Result<Connection> Connection::open_or_start(const ConnectOptions& options, TimePoint deadline,
                                             TimePoint start_after) {
  TimePoint next_start = start_after;
  for (;;) {
    auto connection = open();
    if (connection) return connection;
    const int error = connection.error().code;
    const bool may_come = error == ECONNREFUSED || error == EAGAIN;
    if (!may_come || (error == ECONNREFUSED && !options.start_agent)) return connection;

    const TimePoint now = MonotonicClock::now();
    if (now >= deadline) return fail(error == EAGAIN ? ETIMEDOUT : ECONNREFUSED);
    if (error == ECONNREFUSED && now >= next_start) {
      next_start = now + kStartInterval;  // the first may have met one that was about to end
      const std::string program = find_agent_program(options.agent_program);
      if (program.empty()) {
        log_error("no agent runs, and the program verbena-agent was not found: set VERBENA_AGENT to it");
        return fail(ECONNREFUSED);
      }
      const auto ready = start_agent(program);
      if (!ready) return fail(ECONNREFUSED);
      wait_for(ready->get(), POLLIN, deadline);
    } else {
      std::this_thread::sleep_for(kRetryInterval);
    }
  }
}

tl::unexpected<AdminError> Connection::lose_to_stranger(uint16_t version) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(
      AdminError{EPROTONOSUPPORT,
                 fmt::format("the agent speaks version {} of its protocol, this program (Verbena {}) version "
                             "{}: end the older of the two, and start it anew",
                             version, VERBENA_VERSION, version_)});
}

tl::unexpected<AdminError> Connection::lose(int code) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(AdminError{code, "the connection to the agent is lost"});
}

AdminResult<std::vector<UniqueFd>> Connection::exchange(const protocol::MessageHeader& header,
                                                        ConstBytes request, std::span<const int> fds,
                                                        Bytes reply, TimePoint deadline) {
  if (lost_) return lose(ECONNRESET);
  const auto timed_out = tl::unexpected(AdminError{ETIMEDOUT, "the agent does not answer"});
  for (;;) {
    const auto sent = send_message(socket_.get(), request, fds);
    if (sent) break;
    if (sent.error().code != EAGAIN) return lose(sent.error().code);
    if (!wait_for(socket_.get(), POLLOUT, deadline)) return timed_out;
  }
  for (;;) {
    alignas(protocol::MessageHeader) std::byte buffer[protocol::kMaxMessageBytes];
    const bool may_wait = MonotonicClock::now() + kReceiveTimeout < deadline;
    auto received =
        may_wait ? wait_for_message(socket_.get(), buffer) : receive_message(socket_.get(), buffer);
    if (!received) {
      if (received.error().code != EAGAIN) return lose(received.error().code);
      if (!may_wait && !wait_for(socket_.get(), POLLIN, deadline)) return timed_out;
      continue;
    }
    if (received->bytes == 0) return lose(ECONNRESET);
    protocol::MessageHeader answer{};
    if (received->bytes < sizeof answer || received->truncated) return lose(EPROTO);
    std::memcpy(&answer, buffer, sizeof answer);
    if (answer.magic != protocol::kProtocolMagic) return lose(EPROTO);
    if (answer.sequence != header.sequence) continue;  // of a call that timed out
    agents_version_ = answer.version;
    // One that refuses our version says so in its own.
    if (answer.version != version_ && answer.error != EPROTONOSUPPORT)
      return lose_to_stranger(answer.version);
    if (answer.error != 0) {
      protocol::ErrorReply error{};
      std::memcpy(&error, buffer, std::min(received->bytes, sizeof error));
      return tl::unexpected(AdminError{answer.error, protocol::load_text(error.text)});
    }
    if (answer.type != (header.type | protocol::kReply) || received->bytes != reply.size())
      return lose(EPROTO);
    std::memcpy(reply.data(), buffer, reply.size());
    return std::move(received->fds);
  }
}

}  // namespace verbena::agent_client
