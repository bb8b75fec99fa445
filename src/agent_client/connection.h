// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "agent_client/admin.h"
#include "agent_client/message_socket.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"

namespace verbena::agent_client {

// How long a call may take, the start of an agent included.
inline constexpr Duration kCallTimeout = std::chrono::seconds(2);

// Between attempts to reach the next agent.
inline constexpr Duration kFirstRetry = std::chrono::milliseconds(10);
inline constexpr Duration kLongestRetry = std::chrono::seconds(1);

// No agent's: whoever has not reached one yet.
inline constexpr uid_t kNoAgentYet = static_cast<uid_t>(-1);
// While root's agent restarts, an ordinary user's process waits so long for it rather than start one of its
// own.
Duration grace_for_next(uid_t former_agent);

template <class Reply>
struct Answer {
  Reply message{};
  std::vector<UniqueFd> fds;
};

// One connection to an agent, and one request at a time on it. Not thread-safe.
class Connection {
 public:
  // Over a socket that leads to an agent of this user.
  Connection(UniqueFd socket, uid_t agent_uid) : socket_(std::move(socket)), agent_uid_(agent_uid) {}

  // To the agent that listens now: root's, else our own user's. ECONNREFUSED: none does (or only a stranger
  // who took the name).
  static Result<Connection> open();
  // The same, and starts one if need be and allowed. Not before `start_after`: an agent may be on its way.
  static Result<Connection> open_or_start(const ConnectOptions& options, TimePoint deadline,
                                          TimePoint start_after = {});

  // The same, and says hello by `greet(connection, deadline)`, a Result<void>; to another agent where the one
  // that answered was about to end.
  template <class Greet>
  static Result<void> open_and_greet(const ConnectOptions& options, TimePoint deadline, TimePoint start_after,
                                     Greet&& greet) {
    for (;;) {
      auto connection = open_or_start(options, deadline, start_after);
      if (!connection) return fail(connection.error().code);
      auto greeted = greet(std::move(*connection), deadline);
      const bool again = !greeted && (greeted.error().code == ECONNRESET || greeted.error().code == EPIPE);
      if (!again || MonotonicClock::now() >= deadline) return greeted;
    }
  }

  // Says hello for this program, and offers the vault if there is one. From then on both speak the version of
  // the protocol that both know. EPROTONOSUPPORT: there is none; the user was told.
  AdminResult<Answer<protocol::HelloReply>> say_hello(const UniqueFd& vault, TimePoint deadline);

  // Sends the request and waits for its reply. REQUIRES: request.header was not yet filled in
  template <class Reply, class Request>
  AdminResult<Answer<Reply>> call(protocol::MessageType type, Request request, size_t min_fds,
                                  TimePoint deadline, std::span<const int> fds = {}) {
    request.header = protocol::request_header(type, ++sequence_, version_);
    Answer<Reply> answer;
    auto result = exchange(
        request.header, protocol::bytes_of(request), fds,
        std::as_writable_bytes(std::span(&answer.message, 1)).first(protocol::bytes_in<Reply>(version_)),
        deadline);
    if (!result) return tl::unexpected(std::move(result.error()));
    answer.fds = std::move(*result);
    if (answer.fds.size() < min_fds) return lose(EPROTO);
    return answer;
  }

  // The other end is gone, or does not speak the protocol: the connection is of no more use.
  bool lost() const { return lost_; }
  // Of the protocol, as spoken here.
  uint16_t version() const { return version_; }
  uid_t agent_uid() const { return agent_uid_; }
  // For whoever waits for the agent's death, or closes it in a child after fork().
  int socket() const { return socket_.get(); }

 private:
  AdminResult<std::vector<UniqueFd>> exchange(const protocol::MessageHeader& header, ConstBytes request,
                                              std::span<const int> fds, Bytes reply, TimePoint deadline);
  tl::unexpected<AdminError> lose(int code);
  tl::unexpected<AdminError> lose_to_stranger(uint16_t version);

  UniqueFd socket_;
  uid_t agent_uid_;
  uint32_t sequence_ = 0;
  uint16_t version_ = protocol::kProtocolVersion;
  uint16_t agents_version_ = protocol::kProtocolVersion;  // of its last answer
  bool lost_ = false;
};

}  // namespace verbena::agent_client
