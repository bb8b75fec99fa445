// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <sys/types.h>

#include "base/bytes.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Gives CmClient access to its client's session: to reply, to disconnect, and to learn who the client is.
// Implemented by Session. For the agent's thread.
class CmClientHost {
 public:
  virtual ~CmClientHost() = default;
  virtual void send_reply(ConstBytes message) = 0;
  virtual void send_error(const protocol::MessageHeader& request, int error, std::string_view text) = 0;
  // Disconnects the client. Called when the client has too many queued events.
  virtual void hang_up() = 0;
  virtual uid_t user() const = 0;
  // Returns the client's pid for lists and traces, or 0 if the pid is unknown.
  virtual pid_t process() const { return 0; }
  virtual std::string_view program() const { return {}; }
  // Returns process_number() of the client, which is the same for all clients of one process.
  virtual uint64_t process_identity() const { return 0; }
  // Returns whether the client may name this QPN in requests: the QP is its user's, or the client is trusted.
  virtual bool may_use_qpn(uint32_t qpn) const = 0;
};

}  // namespace verbena::agent
