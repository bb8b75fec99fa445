// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/events.h"
#include "management/cm/incoming.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/messages.h"
#include "management/cm/observer.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

RejectParameters because(RejReason reason);

// Sends a manager's datagrams. Keeps those of connections, to retransmit them by timer or as the answer to a
// duplicate. Answers datagrams that belong to no connection. Builds the messages that several roles send
// (REJ, DREQ). One thread.
class Sender {
 public:
  // REQUIRES: all parameters outlive the sender
  Sender(const ManagerConfig& config, Sink& sink, ConnectionTable& table, KnownPeers& known_peers,
         Counters& counters)
      : config_(config), sink_(sink), table_(table), known_peers_(known_peers), counters_(counters) {}

  // Null: no observer.
  void set_observer(Observer* observer) { observer_ = observer; }

  // Starts a transaction for our next request on this connection. Answers carry the transaction ID of their
  // request.
  void begin_transaction(Connection& connection) const;

  // Sends a message and keeps it to answer duplicates with.
  template <class Message>
  void send_and_keep(Connection& connection, const Message& message) {
    connection.last = {encode(message, connection.transaction), true, Message::kType};
    connection.last.reason = reason_in(message);
    send_again(connection);
  }
  // Sends a message and retransmits it until an answer comes. REQUIRES: the state that waits for the answer
  // has been entered
  template <class Message>
  void send_until_answered(Connection& connection, const Message& message, TimePoint now) {
    send_and_keep(connection, message);
    await_answer(connection, now);
  }
  // Sends the kept datagram again.
  void send_again(Connection& connection);
  // Retransmits the kept datagram after a timeout, unless the peer is unknown and its limit is reached.
  // REQUIRES: connection.retries_left > 0
  void repeat(Connection& connection, TimePoint now);

  // Answers the sender of a datagram that belongs to no connection, or only seems to.
  template <class Message>
  void answer(const Message& message, const Incoming& incoming) {
    send(encode(message, incoming.transaction), Message::kType, answer_path(incoming.arrival.path));
  }
  void answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why,
                  const Incoming& incoming);

  // Sends a REJ; the state tells which message is rejected. The answer to a fresh REQ does not contain our
  // ID.
  void send_rej(Connection& connection, const RejectParameters& why);
  // Sends a REJ with reason "timeout". If the peer's limit of unsolicited datagrams forbids that, only keeps
  // it for a late message.
  void send_timeout_rej(Connection& connection, TimePoint now);
  // Sends a DREQ and enters the state DREQ_SENT.
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
