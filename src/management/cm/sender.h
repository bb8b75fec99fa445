// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/connection_table.h"
#include "management/cm/events.h"
#include "management/cm/known_peers.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// The context of the datagram being handled: how it arrived, and on_mad()'s result (`disposal`).
struct Incoming {
  uint64_t transaction;
  const Arrival& arrival;
  TimePoint now;
  Disposal& disposal;

  const roce::Address& peer() const { return arrival.path.source; }
};

// Returns whether the connection's peer sends from UDP port 4791, but this datagram came from another port.
// In this case, another program of the peer's host sent the datagram.
inline bool is_from_other_port(const Connection& connection, const Incoming& incoming) {
  return connection.info.peer_has_roce_port && !incoming.arrival.from_roce_port;
}

// Returns a message to the connection's peer with both communication IDs set.
template <class Message>
Message message_of(const Connection& connection) {
  Message message;
  message.local_id = connection.info.local_id;
  message.remote_id = connection.info.remote_id;
  return message;
}

// Returns the parameters of a REJ with this reason, without ARI and private data.
RejectParameters because(RejReason reason);

// Sends a manager's datagrams. Stores the last datagram of each connection (Connection::last), to retransmit
// that datagram by timer or as the answer to a duplicate. Also answers datagrams that belong to no
// connection. One thread.
class Sender {
 public:
  // REQUIRES: all parameters outlive the sender
  Sender(const ManagerConfig& config, Sink& sink, ConnectionTable& table, KnownPeers& known_peers,
         Counters& counters)
      : config_(config), sink_(sink), table_(table), known_peers_(known_peers), counters_(counters) {}

  // Sets the observer of sent messages; nullptr for none.
  void set_observer(Observer* observer) { observer_ = observer; }

  // Sets the transaction ID for our next request on the connection. The peer's answers have the same ID.
  void begin_transaction(Connection& connection) const;

  // Sends a message and stores it, so that send_again() can answer duplicates with it.
  template <class Message>
  void send_and_keep(Connection& connection, const Message& message) {
    connection.last = {encode(message, connection.transaction), true, Message::kType};
    connection.last.reason = reason_in(message);
    send_again(connection);
  }
  // Sends a message and starts the timer that retransmits it until an answer comes, at most max_cm_retries
  // times. REQUIRES: the state that waits for the answer has been entered
  template <class Message>
  void send_until_answered(Connection& connection, const Message& message, TimePoint now) {
    send_and_keep(connection, message);
    await_answer(connection, now);
  }
  // Sets the interval and the number of retransmissions of the stored datagram, and starts the timer. A REP
  // gets fewer retransmissions if ManagerConfig::longest_confirmation requires that, but at least one.
  void wait_for(Connection& connection, Duration each, uint8_t retries, TimePoint now);
  // Sends the stored datagram (again).
  void send_again(Connection& connection);
  // Retransmits the stored datagram after a timeout, and restarts the timer. Does not send a REP or REJ to a
  // peer that has never answered, if a limit is reached (known_peers.h, ManagerConfig::max_unasked).
  // REQUIRES: connection.retries_left > 0
  void repeat(Connection& connection, TimePoint now);

  // Sends a message to the sender of the datagram `incoming`. Used if the datagram belongs to no connection,
  // or only seems to belong to one. The message is not stored. answer_rej() sends a REJ in this way.
  template <class Message>
  void answer(const Message& message, const Incoming& incoming) {
    send(encode(message, incoming.transaction), Message::kType, answer_path(incoming.arrival.path));
  }
  void answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why,
                  const Incoming& incoming);

  // Sends and stores a REJ; the connection's state decides which message the REJ rejects. If we have sent
  // nothing on the connection yet (kReqReceived), the REJ does not contain our communication ID.
  void send_rej(Connection& connection, const RejectParameters& why);
  // Sends and stores a REJ with reason "timeout". If the peer has never answered and the limit of datagrams
  // to such peers is reached (known_peers.h), does not send the REJ, but still stores it as the answer to a
  // late message.
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
