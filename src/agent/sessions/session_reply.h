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

// A reply: a message, whose header the session fills in, and the descriptors that are sent with it.
template <class Message = protocol::PlainReply>
struct Reply {
  Message message{};
  std::vector<int> fds{};  // owned by others, and open until the reply is sent
  UniqueFd last_fd{};      // owned by the reply; sent after `fds`
};

// The reply to a request that was carried out, or an error.
template <class Message = protocol::PlainReply>
using RequestResult = control::AdminResult<Reply<Message>>;

// Carries out a request in steps. Called until it returns a result, unless the session ends earlier.
template <class Message = protocol::PlainReply>
using SlicedResult = std::function<std::optional<RequestResult<Message>>()>;

}  // namespace verbena::agent
