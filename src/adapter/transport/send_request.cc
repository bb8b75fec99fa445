// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/send_request.h"

#include <array>

#include "adapter/memory/window.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Operation;

struct Shape {
  Operation first, middle, last, only;
};

// By enum ibv_wr_opcode; only requests that are sent as data packets have a row.
constexpr std::array<Shape, 10> kShapes = [] {
  std::array<Shape, 10> s{};
  s[IBV_WR_RDMA_WRITE] = {Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLast,
                          Operation::kWriteOnly};
  s[IBV_WR_RDMA_WRITE_WITH_IMM] = {Operation::kWriteFirst, Operation::kWriteMiddle,
                                   Operation::kWriteLastImmediate, Operation::kWriteOnlyImmediate};
  s[IBV_WR_SEND] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLast,
                    Operation::kSendOnly};
  s[IBV_WR_SEND_WITH_IMM] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastImmediate,
                             Operation::kSendOnlyImmediate};
  s[IBV_WR_SEND_WITH_INV] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastInvalidate,
                             Operation::kSendOnlyInvalidate};
  return s;
}();

}  // namespace

bool make_data_packet(const QueuePair& qp, roce::Service service, const SendWqe& wqe, uint32_t index,
                      roce::Psn psn, uint32_t most, DataPacket& packet) {
  const uint32_t mtu = qp.attributes().path_mtu;
  const uint32_t offset = offset_of(wqe, index, mtu);
  const uint32_t bytes = std::min(most * mtu, wqe.length - offset);
  const bool starts = index == 0;
  const bool ends = offset + bytes == wqe.length;

  if (wqe.is_inline()) {
    if (bytes > 0) packet.pieces.add({wqe.inline_data() + offset, bytes});
  } else if (!gather(qp.keys(), qp.config().pd, wqe.sges(), offset, bytes, 0, packet.pieces)) {
    return false;
  }

  const Shape& shape = kShapes[wqe.opcode];
  roce::Headers& headers = packet.headers;
  headers.opcode = roce::make_opcode(
      service, starts ? (ends ? shape.only : shape.first) : (ends ? shape.last : shape.middle));
  headers.destination = qp.attributes().destination;
  headers.psn = psn;
  headers.pad = roce::padding_of(bytes);
  headers.solicited = ends && wqe.has_flag(IBV_SEND_SOLICITED) && wakes_peer(wqe);
  headers.immediate = byteswap(wqe.immediate);
  headers.invalidate_rkey = wqe.immediate;
  headers.xrc_srq = wqe.remote_srqn;
  if (starts && is_write(wqe)) {
    headers.address = wqe.remote_address;
    headers.rkey = wqe.rkey;
    headers.dma_length = wqe.length;
  }
  packet.count = packets_for(bytes, mtu);
  packet.bytes = bytes;
  packet.ends = ends;
  return true;
}

uint8_t middle_opcode(roce::Service service, const SendWqe& wqe) {
  return roce::make_opcode(service, kShapes[wqe.opcode].middle);
}

// Errors are "memory management operation error" (IBTA volume 1, 11.6.2), which the verbs name after binding.
std::optional<ibv_wc_status> execute_locally(QueuePair& qp, const SendWqe& wqe) {
  const QpConfig& config = qp.config();
  bool done = false;
  if (wqe.opcode == IBV_WR_LOCAL_INV) {
    done = memory::invalidate_window(*config.keys, wqe.immediate, config.pd, config.qpn.value());
  } else {
    done = memory::bind_window(*config.keys, wqe.binding(config.pd, config.qpn), qp.bound_windows());
  }
  if (done) return std::nullopt;
  return IBV_WC_MW_BIND_ERR;
}

}  // namespace verbena::transport
