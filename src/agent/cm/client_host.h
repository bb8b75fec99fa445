// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <sys/types.h>

#include "base/bytes.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// The agent's connection with a client of connection management. Of the agent's thread.
class CmClientHost {
 public:
  virtual ~CmClientHost() = default;
  virtual void send_reply(ConstBytes message) = 0;
  virtual void send_error(const protocol::MessageHeader& request, int error, std::string_view text) = 0;
  // The client does not take its events.
  virtual void hang_up() = 0;
  virtual uid_t user() const = 0;
  // Who it is, for those who list identifiers; 0: not known.
  virtual pid_t process() const { return 0; }
  virtual std::string_view program() const { return {}; }
  // The same for all clients of one process: process_number().
  virtual uint64_t process_identity() const { return 0; }
  // Whether the user may speak for that QP.
  virtual bool may_use_qpn(uint32_t qpn) const = 0;
};

}  // namespace verbena::agent
