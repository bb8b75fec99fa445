// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <sys/types.h>

#include "base/bytes.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// The agent's connection to a client of connection management. For the agent's thread.
class CmClientHost {
 public:
  virtual ~CmClientHost() = default;
  virtual void send_reply(ConstBytes message) = 0;
  virtual void send_error(const protocol::MessageHeader& request, int error, std::string_view text) = 0;
  // Called when the client does not read its events.
  virtual void hang_up() = 0;
  virtual uid_t user() const = 0;
  // The process, for lists of identifiers; 0: unknown.
  virtual pid_t process() const { return 0; }
  virtual std::string_view program() const { return {}; }
  // process_number(): the same for all clients of one process.
  virtual uint64_t process_identity() const { return 0; }
  // Whether the user may use this QP in requests.
  virtual bool may_use_qpn(uint32_t qpn) const = 0;
};

}  // namespace verbena::agent
