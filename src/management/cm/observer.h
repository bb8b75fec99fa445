// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "management/cm/mad.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// A message that a connection has sent or received, for an Observer.
struct Passage {
  MessageType type = MessageType::kReq;
  uint16_t reason = 0;       // the reason of a REJ, or the status of a SIDR_REP or APR; else 0
  uint16_t repetitions = 0;  // sent: number of earlier transmissions. Received: 1 for a duplicate REQ
};

// Returns the reason or status in a message that has such a field; else 0.
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

// Records the messages of connections, for traces. The manager calls it during operations, on_mad() and
// on_timer(); an implementation may not call the manager. Reports received messages only of existing
// connections, so not a passive connection's first REQ. Destroyed connections are not reported, except for
// the messages that destroy() itself sends.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_sent(const ConnectionInfo& connection, const Passage& passage) = 0;
  virtual void on_received(const ConnectionInfo& connection, const Passage& passage) = 0;
};

}  // namespace verbena::cm
