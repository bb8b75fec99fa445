// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "agent_client/admin_error.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"

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
using RequestResult = agent_client::AdminResult<Reply<Message>>;

}  // namespace verbena::agent
