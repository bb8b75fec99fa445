// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include "agent/slots/slot_table.h"
#include "base/unique_fd.h"
#include "control/model/admin_error.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

using control::refuse;

// A reply: a message, whose header the session fills in, and the descriptors that are sent with it.
template <class Message = protocol::PlainReply>
struct Reply {
  Message message{};
  std::vector<int> fds{};  // owned by others, and open until the reply is sent
  UniqueFd last_fd{};      // owned by the reply; sent after `fds`, and closed by the ForeignCloser
  // Keeps a descriptor of `fds` open until the reply is sent. For one whose close may take long
  // (ForeignCloser::share()).
  std::shared_ptr<const UniqueFd> keeps{};
};

// The reply to a request that was carried out, or an error.
template <class Message = protocol::PlainReply>
using RequestResult = control::AdminResult<Reply<Message>>;

// Returns the reply to a request that has only an outcome. `text`: the error text.
inline RequestResult<> plain_reply(const Result<void>& outcome, std::string_view text) {
  if (!outcome) return refuse(outcome.error().code, text);
  return {};
}

// Carries out a request in steps. Called until it returns a result, unless the session ends earlier.
template <class Message = protocol::PlainReply>
using SlicedResult = std::function<std::optional<RequestResult<Message>>()>;

// Takes the result of a request, on the agent's thread. Drops the result if the session has ended. If the
// last copy is destroyed without a call, the session is closed.
template <class Message = protocol::PlainReply>
using Answer = std::function<void(RequestResult<Message>)>;

// Begins a request that another thread works on, because it may wait for locks of the kernel. Called once.
// Passes the result to the Answer, now or later. REQUIRES: the reply has at most one descriptor
template <class Message = protocol::PlainReply>
using LaterResult = std::function<void(Answer<Message>)>;

// Returns whether the user may see all processes: root and the agent's own user may. Others see only their
// own processes, because a process that knows a QPN can interfere with the QP's owner.
inline bool sees_all(uid_t user) {
  return user == 0 || user == ::geteuid();
}
// Returns the only user whose processes the client may see, or nullopt if it may see those of all users.
inline std::optional<uid_t> seen_by(const Lessee& client) {
  return sees_all(client.uid) ? std::nullopt : std::optional<uid_t>(client.uid);
}
inline bool sees(const Lessee& client, uid_t user) {
  return sees_all(client.uid) || client.uid == user;
}

}  // namespace verbena::agent
