// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/tag_matching.h"

#include <algorithm>
#include <cstring>

#include <infiniband/tm_types.h>

namespace verbena::transport {

static_assert(sizeof(ibv_tmh) == kTagHeaderBytes && sizeof(ibv_rvh) == kRendezvousHeaderBytes);

using queues::SendWqe;
using Kind = TaggedMessage::Kind;

TaggedMessage read_tagged_message(ConstBytes payload, bool whole) {
  TaggedMessage message;
  message.kind = Kind::kUntagged;
  if (payload.size() < kTagHeaderBytes) return message;
  const std::byte* at = payload.data();
  const auto operation = std::to_integer<uint8_t>(at[offsetof(ibv_tmh, opcode)]);
  if (operation != IBV_TMH_EAGER && operation != IBV_TMH_RNDV) return message;
  message.tag = load_be<uint64_t>(at + offsetof(ibv_tmh, tag));
  message.application = load_be<uint32_t>(at + offsetof(ibv_tmh, app_ctx));
  if (operation == IBV_TMH_EAGER) {
    message.kind = Kind::kEager;
    return message;
  }
  if (!whole || payload.size() < kTagHeaderBytes + kRendezvousHeaderBytes ||
      payload.size() > kMaxRendezvousMessage) {
    message.kind = Kind::kUnexpected;  // left to software
    return message;
  }
  at += kTagHeaderBytes;
  message.kind = Kind::kRendezvous;
  message.address = load_be<uint64_t>(at + offsetof(ibv_rvh, va));
  message.rkey = load_be<uint32_t>(at + offsetof(ibv_rvh, rkey));
  message.length = load_be<uint32_t>(at + offsetof(ibv_rvh, len));
  return message;
}

bool has_room_for_rendezvous(QueuePair& qp) {
  return qp.send_queue().reserve(1) != nullptr;
}

void fetch_rendezvous(QueuePair& qp, const TaggedMessage& message, const queues::RecvWqe& buffer,
                      ConstBytes headers) {
  SendWqe& read = *qp.send_queue().reserve(0);
  read = SendWqe{};
  read.wr_id = buffer.wr_id;
  read.opcode = IBV_WR_RDMA_READ;
  read.flags = queues::kTagMatchingRequest;
  read.remote_address = message.address;
  read.rkey = message.rkey;
  read.length = message.length;
  read.num_sge = static_cast<uint16_t>(buffer.num_sge);
  std::copy_n(buffer.sges().data(), buffer.num_sge, read.sge_space());

  SendWqe& finish = *qp.send_queue().reserve(1);
  finish = SendWqe{};
  finish.opcode = IBV_WR_SEND;
  finish.flags = queues::kTagMatchingRequest | IBV_SEND_INLINE | IBV_SEND_FENCE;
  finish.length = kTagHeaderBytes + kRendezvousHeaderBytes;
  std::memcpy(finish.inline_space(), headers.data(), finish.length);
  finish.inline_space()[offsetof(ibv_tmh, opcode)] = std::byte{IBV_TMH_FIN};
  qp.send_queue().publish(2);
}

}  // namespace verbena::transport
