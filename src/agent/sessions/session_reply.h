// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "control/model/admin_error.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// What a request is answered with: a message, whose header the session fills in, and descriptors.
template <class Message = protocol::PlainReply>
struct Reply {
  Message message{};
  std::vector<int> fds{};  // another's, who keeps them until the reply is sent
  UniqueFd last_fd{};      // the reply's own; goes after the others
};

// What it is answered with if it was carried out, or why it was not.
template <class Message = protocol::PlainReply>
using RequestResult = control::AdminResult<Reply<Message>>;

// The same for a request that is carried out little by little. It is called until it has an outcome, and is
// destroyed where the session ends before.
template <class Message = protocol::PlainReply>
using SlicedResult = std::function<std::optional<RequestResult<Message>>()>;

}  // namespace verbena::agent
