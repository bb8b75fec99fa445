// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>

#include "cm/manager.h"

namespace verbena::cm {

// The sending half of Manager, for the files that carry it out.

// Puts private data in its place. False if there is more than room.
template <size_t N>
bool put(ConstBytes from, PrivateData<N>& to) {
  if (from.size() > N) return false;
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return true;
}

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
