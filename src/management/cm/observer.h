// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "management/cm/mad.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// A message that a connection has sent or received.
struct Passage {
  MessageType type = MessageType::kReq;
  uint16_t reason = 0;  // of a REJ; of a SIDR_REP its status
  uint16_t repetitions =
      0;  // sent: how often the same was sent before. Received: 1, if it is a duplicate REQ
};

// Why the peer refuses, in messages that say it.
template <class Message>
uint16_t reason_in(const Message& message) {
  if constexpr (requires { message.reason; }) {
    return message.reason;
  } else if constexpr (requires { message.status; }) {
    return static_cast<uint16_t>(message.status);
  } else {
    return 0;
  }
}

// Records the messages of connections. Called in the middle of operations, on_mad() and on_timer(); may not
// call the manager. `context` is that of the owner: connections that were destroyed are not recorded, but for
// what destroy() itself sends.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_sent(const ConnectionInfo& connection, const Passage& passage) = 0;
  virtual void on_received(const ConnectionInfo& connection, const Passage& passage) = 0;
};

}  // namespace verbena::cm
