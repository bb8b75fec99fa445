// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/events.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/messages.h"
#include "management/cm/observer.h"
#include "management/cm/parameters.h"
#include "management/cm/receipt.h"

namespace verbena::cm {

RejectParameters because(RejReason reason);

// Sends a manager's datagrams: those of a connection, which it keeps to repeat them by timer or when the peer
// repeats its question, and answers to datagrams that are of no connection. The messages that more than one
// role has cause to send (REJ, DREQ) are made here. One thread.
class Sender {
 public:
  // REQUIRES: all of them outlive the sender
  Sender(const ManagerConfig& config, Sink& sink, ConnectionTable& table, KnownPeers& known_peers,
         Counters& counters)
      : config_(config), sink_(sink), table_(table), known_peers_(known_peers), counters_(counters) {}

  // Null: nobody.
  void set_observer(Observer* observer) { observer_ = observer; }

  // For the next request of ours about this connection; answers carry the transaction of the request.
  void begin_transaction(Connection& connection) const;

  // Sends, and keeps the datagram to answer a duplicate with.
  template <class Message>
  void send_and_keep(Connection& connection, const Message& message) {
    connection.last = {encode(message, connection.transaction), true, Message::kType};
    connection.last.reason = reason_in(message);
    send_again(connection);
  }
  // REQUIRES: the state has been entered in which the answer is awaited
  template <class Message>
  void send_until_answered(Connection& connection, const Message& message, TimePoint now) {
    send_and_keep(connection, message);
    await_answer(connection, now);
  }
  // What was kept.
  void send_again(Connection& connection);
  // The same, as the time for an answer is over, unless the peer is one that may not be sent so much.
  // REQUIRES: connection.retries_left > 0
  void repeat(Connection& connection, TimePoint now);

  // To the sender of a datagram that is of no connection, or only seems to be.
  template <class Message>
  void answer(const Message& message, const ReceiverReport& receipt) {
    send(encode(message, receipt.transaction), Message::kType, answer_path(receipt.arrival.path));
  }
  void answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why,
                  const ReceiverReport& receipt);

  // What is rejected follows from the state; a REQ that nothing has answered yet does not learn our ID.
  void send_rej(Connection& connection, const RejectParameters& why);
  // Because the peer has not answered. What may not be sent is kept to answer a late word of its.
  void send_timeout_rej(Connection& connection, TimePoint now);
  // Begins to disconnect: the state is DREQ_SENT after this.
  void send_dreq(Connection& connection, ConstBytes private_data, TimePoint now);

 private:
  void send(const Mad& mad, MessageType type, const roce::Path& path);
  void keep_rej(Connection& connection, const RejectParameters& why);
  void await_answer(Connection& connection, TimePoint now);
  bool may_send_unasked(Connection& connection, TimePoint now);

  const ManagerConfig& config_;
  Sink& sink_;
  ConnectionTable& table_;
  KnownPeers& known_peers_;
  Counters& counters_;
  Observer* observer_ = nullptr;
};

}  // namespace verbena::cm
