// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/queue_pair.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// The functions below return properties of send requests; the requesters of all services need them.

// The longest message in bytes (max_msg_sz): its PSNs stay well below half the PSN space at the smallest MTU.
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;

inline bool is_read(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_RDMA_READ;
}
inline bool is_atomic(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
// Whether the request is an ATOMIC WRITE or a FLUSH. Each is one packet, and the peer answers it by a READ
// response without payload.
inline bool is_placement(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_ATOMIC_WRITE || wqe.opcode == queues::kFlushOpcode;
}
// Whether the request completes by a response, not just by an acknowledgement.
inline bool needs_response(const queues::SendWqe& wqe) {
  return is_read(wqe) || is_atomic(wqe) || is_placement(wqe);
}
// Whether the request is a SEND or an RDMA WRITE, with or without immediate data or invalidation.
inline bool is_data(const queues::SendWqe& wqe) {
  return wqe.opcode <= IBV_WR_SEND_WITH_IMM || wqe.opcode == IBV_WR_SEND_WITH_INV;
}
static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_SEND_WITH_IMM == 3);
// Whether the request completes as IBV_WC_SEND.
inline bool is_send(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM ||
         wqe.opcode == IBV_WR_SEND_WITH_INV;
}
inline bool is_write(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_RDMA_WRITE || wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
// Whether the request is executed here, without a packet.
inline bool is_local(const queues::SendWqe& wqe) {
  return wqe.opcode == IBV_WR_LOCAL_INV || wqe.opcode == IBV_WR_BIND_MW;
}
// Whether the request consumes a receive request of the peer.
inline bool wakes_peer(const queues::SendWqe& wqe) {
  return is_data(wqe) && wqe.opcode != IBV_WR_RDMA_WRITE;
}

// Number of bytes of the message before packet `index`.
inline uint32_t offset_of(const queues::SendWqe& wqe, uint32_t index, uint32_t mtu) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{index} * mtu, wqe.length));
}

// Number of packets for a message of `bytes` bytes; one for an empty message. REQUIRES: bytes <=
// kMaxMessageBytes
constexpr uint32_t packets_for(uint32_t bytes, uint32_t mtu) {
  return std::max<uint32_t>(1, (bytes + mtu - 1) / mtu);
}

// Number of PSNs that the request uses. For a READ, these are the PSNs of the response packets.
inline uint32_t packets_of(const queues::SendWqe& wqe, uint32_t mtu) {
  return is_atomic(wqe) || is_placement(wqe) ? 1 : packets_for(wqe.length, mtu);
}

// A packet or super-packet of a SEND or RDMA WRITE. make_data_packet() does not set headers.ack_request: the
// requester sets it.
struct DataPacket {
  roce::Headers headers;
  Pieces pieces;
  uint32_t count;  // of packets
  uint32_t bytes;  // of payload
  bool ends;       // whether its last packet ends the message
};

// Makes packet `index` of the request, with PSN `psn`, in `packet`. If `most` > 1, makes a super-packet of at
// most `most` packets that begins there. Returns false if the message's memory may not be read. REQUIRES:
// is_data(wqe), index < packets_of(wqe, path MTU), most > 0
bool make_data_packet(const QueuePair& qp, roce::Service service, const queues::SendWqe& wqe, uint32_t index,
                      roce::Psn psn, uint32_t most, DataPacket& packet);

// Returns the opcode of the request's Middle packets. REQUIRES: is_data(wqe)
uint8_t middle_opcode(roce::Service service, const queues::SendWqe& wqe);

// Executes a request that needs no packet. Returns the error with which the request must complete, or nullopt
// on success. REQUIRES: is_local(wqe), the requests before this one have been started
std::optional<ibv_wc_status> execute_locally(QueuePair& qp, const queues::SendWqe& wqe);

}  // namespace verbena::transport
