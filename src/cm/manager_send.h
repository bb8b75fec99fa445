// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cm/manager.h"
#include "cm/private_data.h"

namespace verbena::cm {

// The sending half of Manager, for the files that carry it out.

inline RejectParameters because(RejReason reason) {
  RejectParameters why;
  why.reason = static_cast<uint16_t>(reason);
  return why;
}

// Sends, and keeps the datagram to answer a duplicate with.
template <class Message>
void Manager::send_and_keep(Connection& connection, const Message& message) {
  connection.last = {encode(message, connection.transaction), true, Message::kType};
  send_again(connection);
}

// REQUIRES: the state has been entered in which the answer is awaited
template <class Message>
void Manager::send_until_answered(Connection& connection, const Message& message, TimePoint now) {
  send_and_keep(connection, message);
  connection.retries_left = connection.info.max_cm_retries;
  connection.repeat_after = connection.timeout;
  timers_.set(connection, now + connection.timeout);
}

// To whoever sent a datagram that is of no connection, or only seems to be.
template <class Message>
void Manager::answer(const Message& message, const Receipt& receipt) {
  send(encode(message, receipt.transaction), Message::kType, answer_path(receipt.arrival.path));
}

}  // namespace verbena::cm
