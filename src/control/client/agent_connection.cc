// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_connection.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/format.h"
#include "base/log.h"
#include "base/text.h"
#include "control/model/agent_silence.h"
#include "control/model/message_socket.h"

namespace verbena::control {
namespace {

// How long a receive waits in the kernel, which saves the system call of waiting in poll(2).
constexpr auto kReceiveTimeout = std::chrono::seconds(1);

}  // namespace

AgentConnection::AgentConnection(UniqueFd socket, uid_t agent_uid, pid_t agent_pid)
    : socket_(std::move(socket)), agent_uid_(agent_uid), agent_pid_(agent_pid) {
  const timeval timeout{kReceiveTimeout.count(), 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

void AgentConnection::abandon() {
  socket_.reset();
  lost_ = true;
}

AdminResult<Answer<protocol::HelloReply>> AgentConnection::say_hello(const OwnFd& takeover_state,
                                                                     TimePoint deadline) {
  protocol::HelloRequest hello{};
  store_text(hello.program, program_invocation_short_name);
  const int offered = takeover_state.is_ours() ? takeover_state.get() : -1;
  const auto say = [&] {
    return call<protocol::HelloReply>(protocol::MessageType::kHello, hello, 2, deadline,
                                      std::span<const int>(&offered, offered >= 0 ? 1 : 0));
  };
  auto answer = say();
  if (answer || (answer.error().code != EPROTONOSUPPORT && answer.error().code != EPERM)) return answer;
  // An agent that is too old for this version says which version it speaks.
  const bool older = answer.error().code == EPROTONOSUPPORT && agents_version_ < version_ &&
                     protocol::is_neighbour(agents_version_);
  if (older) {
    version_ = agents_version_;
    answer = say();
    if (answer) {
      if (version_ == 1) {
        answer->message.capabilities = protocol::kServesXrcDomains | protocol::kServesConnectionManagement;
      }
      return answer;
    }
  }
  static std::atomic<bool> said{false};  // once, not at each attempt to reach an agent
  if (!said.exchange(true)) log_error("no RDMA devices: {}", answer.error().text);
  return answer;
}

tl::unexpected<AdminError> AgentConnection::lose_to_stranger(uint16_t version) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(AdminError{
      EPROTONOSUPPORT,
      verbena::format("the agent speaks version {} of its protocol, this program (Verbena {}) version "
                      "{}: end the older of the two, and start it again",
                      version, VERBENA_VERSION, version_)});
}

tl::unexpected<AdminError> AgentConnection::lose(int code) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(AdminError{code, code == EMFILE ? "this process may open no more descriptors"
                                                        : "the connection to the agent is lost"});
}

// An agent of the previous version accepts this side's hello, and answers in its own version.
void AgentConnection::consider_version_of(const protocol::MessageHeader& answer) {
  const bool taken = answer.error != EPROTONOSUPPORT && protocol::is_neighbour(answer.version);
  if (taken && answer.version < version_) version_ = answer.version;
}

AdminResult<bool> AgentConnection::judge(ConstBytes message, const protocol::MessageHeader& request,
                                         const ReplyPlace& reply) {
  protocol::MessageHeader answer{};
  if (message.size() < sizeof answer) return lose(EPROTO);
  std::memcpy(&answer, message.data(), sizeof answer);
  if (answer.magic != protocol::kProtocolMagic) return lose(EPROTO);
  if (answer.sequence != request.sequence) return false;
  agents_version_ = answer.version;
  if (request.type == static_cast<uint16_t>(protocol::MessageType::kHello)) consider_version_of(answer);
  // An agent that refuses this version says so in its own.
  if (answer.version != version_ && answer.error != EPROTONOSUPPORT) return lose_to_stranger(answer.version);
  if (answer.error != 0) {
    protocol::ErrorReply error{};
    std::memcpy(&error, message.data(), std::min(message.size(), sizeof error));
    return tl::unexpected(AdminError{answer.error, load_text(error.text)});
  }
  const bool fits = message.size() == reply.length_in(version_);
  if (answer.type != (request.type | protocol::kReply) || !fits) return lose(EPROTO);
  return true;
}

AdminResult<std::vector<UniqueFd>> AgentConnection::exchange(const protocol::MessageHeader& header,
                                                             ConstBytes request, std::span<const int> fds,
                                                             const ReplyPlace& reply, TimePoint deadline) {
  if (lost_ || !socket_.is_ours()) return lose(ECONNRESET);
  const auto timed_out = [this] {
    return tl::unexpected(AdminError{ETIMEDOUT, describe_silence(agent_pid_)});
  };
  SilenceLog silence(agent_pid_);
  // Waits for the socket. False: the deadline has come.
  const auto wait = [&](short events) {
    const bool is_ready = wait_until_ready(socket_.get(), events, std::min(deadline, silence.due()));
    if (is_ready || MonotonicClock::now() >= deadline) return is_ready;
    silence.consider();
    return true;
  };
  for (;;) {
    const auto sent = send_message(socket_.get(), request, fds);
    if (sent) break;
    // An agent that needs no takeover state may refuse descriptors before it has heard a hello.
    if (sent.error().code == EPERM && header.type == static_cast<uint16_t>(protocol::MessageType::kHello) &&
        !fds.empty()) {
      fds = {};
      continue;
    }
    if (sent.error().code != EAGAIN) return lose(sent.error().code);
    if (!wait(POLLOUT)) return timed_out();
  }
  for (;;) {
    alignas(protocol::MessageHeader) std::byte buffer[protocol::kMaxAgentMessageBytes];
    const bool may_wait = MonotonicClock::now() + kReceiveTimeout < std::min(deadline, silence.due());
    auto received =
        may_wait ? wait_for_message(socket_.get(), buffer) : receive_message(socket_.get(), buffer);
    if (!received) {
      if (received.error().code != EAGAIN) return lose(received.error().code);
      if (!may_wait && !wait(POLLIN)) return timed_out();
      continue;
    }
    if (received->bytes == 0) return lose(ECONNRESET);
    if (received->lost_fds) return lose(EMFILE);
    if (received->truncated) return lose(EPROTO);
    const auto answers = judge(ConstBytes(buffer, received->bytes), header, reply);
    if (!answers) return tl::unexpected(answers.error());
    if (!*answers) continue;
    std::memcpy(reply.bytes.data(), buffer, received->bytes);
    return std::move(received->fds);
  }
}

}  // namespace verbena::control
