// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"

namespace verbena::cm {

void Manager::send(const Mad& mad, MessageType type, const roce::Path& path) {
  ++counters_.sent[static_cast<size_t>(type)];
  sink_.send(mad, path);
}

void Manager::send_again(Connection& connection) {
  send(connection.last.mad, connection.last.type, connection.info.path);
}

void Manager::answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected,
                         const RejectParameters& why, const Receipt& receipt) {
  Rej rej;
  rej.local_id = local_id;
  rej.remote_id = remote_id;
  rej.rejected = rejected;
  rej.reason = why.reason;
  rej.ari_length = static_cast<uint8_t>(why.ari.size());
  put(why.ari, rej.ari);
  answer(rej, receipt);
}

// What is rejected follows from the state; a REQ that nothing has answered yet does not learn our ID.
void Manager::send_rej(Connection& connection, const RejectParameters& why) {
  Rej rej;
  rej.local_id = connection.info.local_id;
  rej.remote_id = connection.info.remote_id;
  rej.rejected = Answered::kOther;
  rej.reason = why.reason;
  rej.ari_length = static_cast<uint8_t>(why.ari.size());
  put(why.ari, rej.ari);
  put(why.private_data, rej.private_data);
  switch (connection.info.state) {
    case State::kReqReceived:
      rej.local_id = 0;
      rej.rejected = Answered::kReq;
      break;
    case State::kMraReqSent:
      rej.rejected = Answered::kReq;
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
      rej.rejected = Answered::kRep;
      break;
    default:
      break;
  }
  send_and_keep(connection, rej);
}

// The ARI is the sender's CA GUID (IBTA volume 1, table 109): the peer may not know our ID yet.
void Manager::send_timeout_rej(Connection& connection) {
  std::byte guid[8];
  store_be(guid, connection.local_ca_guid);
  RejectParameters why;
  why.reason = static_cast<uint16_t>(RejReason::kTimeout);
  why.ari = guid;
  send_rej(connection, why);
}

}  // namespace verbena::cm
