// SPDX-License-Identifier: Apache-2.0
#include "management/cm/sender.h"

namespace verbena::cm {
namespace {

Rej make_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why) {
  Rej rej{.local_id = local_id, .remote_id = remote_id, .rejected = rejected, .reason = why.reason};
  rej.ari_length = static_cast<uint8_t>(why.ari.size());
  put(why.ari, rej.ari);
  put(why.private_data, rej.private_data);
  return rej;
}

}  // namespace

RejectParameters because(RejReason reason) {
  RejectParameters why;
  why.reason = static_cast<uint16_t>(reason);
  return why;
}

void Sender::send(const Mad& mad, MessageType type, const roce::Path& path) {
  ++counters_.sent[static_cast<size_t>(type)];
  sink_.send(mad, path);
}

void Sender::send_again(Connection& connection) {
  Repetition& last = connection.last;
  send(last.mad, last.type, connection.info.path);
  const uint16_t repetitions = last.sent;
  if (last.sent < UINT16_MAX) ++last.sent;
  if (observer_ == nullptr || !connection.has_owner) return;
  observer_->on_sent(connection.info, {last.type, last.reason, repetitions});
}

void Sender::begin_transaction(Connection& connection) const {
  connection.transaction =
      static_cast<uint64_t>(config_.transaction_prefix) << 32 | byteswap(connection.info.local_id);
}

void Sender::await_answer(Connection& connection, TimePoint now) {
  wait_for(connection, connection.timeout, connection.info.max_cm_retries, now);
}

// The peer chooses both numbers for a REP, and a half-open connection takes the place of another.
void Sender::wait_for(Connection& connection, Duration each, uint8_t retries, TimePoint now) {
  if (connection.last.type == MessageType::kRep) {
    const auto most = std::max<int64_t>(1, config_.longest_confirmation / each);
    retries = static_cast<uint8_t>(std::min<int64_t>(retries, most));
  }
  connection.retries_left = retries;
  connection.repeat_after = each;
  table_.set_timer(connection, now + each);
}

void Sender::repeat(Connection& connection, TimePoint now) {
  --connection.retries_left;
  if (may_send_unasked(connection, now)) {
    ++counters_.retransmitted[static_cast<size_t>(connection.last.type)];
    send_again(connection);
  }
  table_.set_timer(connection, now + connection.repeat_after);
}

// Whether a retransmission to this peer is allowed. Always for our own requests, and for peers that have
// answered.
bool Sender::may_send_unasked(Connection& connection, TimePoint now) {
  const bool is_answer =
      connection.last.type == MessageType::kRep || connection.last.type == MessageType::kRej;
  if (connection.info.is_active || !is_answer) return true;
  const roce::Address& peer = connection.info.path.destination;
  if (!known_peers_.knows(peer, now) && connection.unasked >= config_.max_unasked) return false;
  if (!known_peers_.may_send_unasked(peer, now)) return false;
  if (connection.unasked < config_.max_unasked) ++connection.unasked;
  return true;
}

void Sender::answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why,
                        const Incoming& incoming) {
  answer(make_rej(local_id, remote_id, rejected, why), incoming);
}

void Sender::send_rej(Connection& connection, const RejectParameters& why) {
  keep_rej(connection, why);
  send_again(connection);
}

void Sender::keep_rej(Connection& connection, const RejectParameters& why) {
  const State state = connection.info.state;
  Rej rej = make_rej(connection.info.local_id, connection.info.remote_id, Answered::kOther, why);
  if (state == State::kReqReceived) rej.local_id = 0;
  if (state == State::kReqReceived || state == State::kMraReqSent) rej.rejected = Answered::kReq;
  if (state == State::kRepReceived || state == State::kMraRepSent) rej.rejected = Answered::kRep;
  connection.last = {encode(rej, connection.transaction), true, MessageType::kRej};
  connection.last.reason = rej.reason;
}

// The ARI is the sender's CA GUID (IBTA volume 1, table 109), since the peer may not know our ID yet.
void Sender::send_timeout_rej(Connection& connection, TimePoint now) {
  const bool may_send =
      connection.info.is_active || known_peers_.may_send_unasked(connection.info.path.destination, now);
  std::byte guid[8];
  store_be(guid, connection.local_ca_guid);
  RejectParameters why = because(RejReason::kTimeout);
  why.ari = guid;
  keep_rej(connection, why);
  if (may_send) send_again(connection);
}

void Sender::send_dreq(Connection& connection, ConstBytes private_data, TimePoint now) {
  auto dreq = message_of<Dreq>(connection);
  dreq.remote_qpn = connection.info.remote_qpn;
  put(private_data, dreq.private_data);
  begin_transaction(connection);
  table_.enter(connection, State::kDreqSent);
  send_until_answered(connection, dreq, now);
}

}  // namespace verbena::cm
