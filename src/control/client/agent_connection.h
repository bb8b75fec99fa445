// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/own_fd.h"
#include "base/time.h"
#include "control/model/admin_error.h"
#include "control/protocol/messages.h"

namespace verbena::control {

template <class Reply>
struct Answer {
  Reply message{};
  std::vector<UniqueFd> fds;
};

// A connection to an agent, with one request at a time. Not thread-safe.
class AgentConnection {
 public:
  // Takes a connected socket (SOCK_SEQPACKET, blocking). `agent_uid` is the agent's user; `agent_pid` is 0 if
  // unknown.
  AgentConnection(UniqueFd socket, uid_t agent_uid, pid_t agent_pid = 0);

  // Says hello for this program, and offers the agent the takeover state `takeover_state`, if the process has
  // it. From then on both sides speak the protocol version that both know. EPROTONOSUPPORT: there is none;
  // EPERM: the agent serves another user. The process logs the first of these errors.
  AdminResult<Answer<protocol::HelloReply>> say_hello(const OwnFd& takeover_state, TimePoint deadline);

  // Sends the request and waits for its reply until the deadline (ETIMEDOUT); TimePoint::max(): as long as
  // the agent lives. REQUIRES: request.header was not yet filled in
  template <class Reply, class Request>
  AdminResult<Answer<Reply>> call(protocol::MessageType type, Request request, size_t min_fds,
                                  TimePoint deadline, std::span<const int> fds = {}) {
    request.header = protocol::request_header(type, ++sequence_, version_);
    Answer<Reply> answer;
    auto result = exchange(
        request.header, protocol::bytes_of(request), fds,
        {std::as_writable_bytes(std::span(&answer.message, 1)), &protocol::bytes_in<Reply>}, deadline);
    if (!result) return tl::unexpected(std::move(result.error()));
    answer.fds = std::move(*result);
    if (answer.fds.size() < min_fds) return lose(EPROTO);
    return answer;
  }

  // Whether the other end is gone or broke the protocol, so that the connection is of no more use.
  bool lost() const { return lost_; }
  // The protocol version in use.
  uint16_t version() const { return version_; }
  uid_t agent_uid() const { return agent_uid_; }
  pid_t agent_pid() const { return agent_pid_; }

  // In a child after fork(): closes the child's copy of the socket. The agent goes on with the parent.
  void abandon();

 private:
  // The buffer for a reply, and the reply's length in each version.
  struct ReplyPlace {
    Bytes bytes;
    size_t (*length_in)(uint16_t version);
  };
  AdminResult<std::vector<UniqueFd>> exchange(const protocol::MessageHeader& header, ConstBytes request,
                                              std::span<const int> fds, const ReplyPlace& reply,
                                              TimePoint deadline);
  // Whether a message is the reply to the request. False: it answers a call that timed out. An error: the
  // agent refuses the request, or broke the protocol.
  AdminResult<bool> judge(ConstBytes message, const protocol::MessageHeader& request,
                          const ReplyPlace& reply);
  // Adopts the protocol version of the agent's answer to hello, if it is older and this side speaks it.
  void consider_version_of(const protocol::MessageHeader& answer);
  tl::unexpected<AdminError> lose(int code);
  tl::unexpected<AdminError> lose_to_stranger(uint16_t version);

  OwnFd socket_;
  uid_t agent_uid_;
  pid_t agent_pid_;
  uint32_t sequence_ = 0;
  uint16_t version_ = protocol::kProtocolVersion;
  uint16_t agents_version_ = protocol::kProtocolVersion;  // of its last answer
  bool lost_ = false;
};

}  // namespace verbena::control
