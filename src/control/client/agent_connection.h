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

// A connection to an agent. Sends one request at a time and waits for its reply. Not thread-safe.
class AgentConnection {
 public:
  // Takes over a connected, blocking SOCK_SEQPACKET socket. `agent_pid` is 0 if unknown.
  AgentConnection(UniqueFd socket, uid_t agent_uid, pid_t agent_pid = 0);

  // Sends the first request of a connection, kHello, with the descriptor `takeover_state` if it is open. Both
  // sides then use the highest protocol version that both know. EPROTONOSUPPORT if there is none, EPERM if
  // the agent serves another user. The first of these two errors in a process is logged.
  AdminResult<Answer<protocol::HelloReply>> say_hello(const OwnFd& takeover_state, TimePoint deadline);

  // Sends the request, fills in its header, and waits for the reply until the deadline (ETIMEDOUT). With
  // TimePoint::max(), waits as long as the agent runs. EPROTO if the reply has fewer than `min_fds`
  // descriptors.
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

  // Whether the connection is closed, so that all further calls fail. A call closes it if it finds that the
  // agent has ended or broken the protocol, or if this process may open no more descriptors. abandon() closes
  // it as well.
  bool lost() const { return lost_; }
  // Returns the protocol version in use.
  uint16_t version() const { return version_; }
  uid_t agent_uid() const { return agent_uid_; }
  pid_t agent_pid() const { return agent_pid_; }

  // Closes the socket in a child process after fork(). The parent's copy stays connected.
  void abandon();

 private:
  // The buffer for a reply, and a function that returns the reply's length in a protocol version.
  struct ReplyPlace {
    Bytes bytes;
    size_t (*length_in)(uint16_t version);
  };
  AdminResult<std::vector<UniqueFd>> exchange(const protocol::MessageHeader& header, ConstBytes request,
                                              std::span<const int> fds, const ReplyPlace& reply,
                                              TimePoint deadline);
  // Returns true if a message is the reply to the request, false if it replies to an earlier call that timed
  // out. Returns an error if the agent refuses the request or broke the protocol.
  AdminResult<bool> judge(ConstBytes message, const protocol::MessageHeader& request,
                          const ReplyPlace& reply);
  // Adopts the protocol version of the agent's reply to kHello, if it is older and known to this side.
  void consider_version_of(const protocol::MessageHeader& answer);
  tl::unexpected<AdminError> lose(int code);
  tl::unexpected<AdminError> lose_to_stranger(uint16_t version);

  OwnFd socket_;
  uid_t agent_uid_;
  pid_t agent_pid_;
  uint32_t sequence_ = 0;
  uint16_t version_ = protocol::kProtocolVersion;
  uint16_t agents_version_ = protocol::kProtocolVersion;  // of the agent's last reply
  bool lost_ = false;
};

}  // namespace verbena::control
