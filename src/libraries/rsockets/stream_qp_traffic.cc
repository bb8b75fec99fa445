// SPDX-License-Identifier: Apache-2.0
// The requests that a connection posts, and the handling of completions.
#include "libraries/rsockets/stream_qp.h"

namespace verbena::rsockets {
namespace {

// Work request IDs: the operation in the upper 32 bits, bytes of the send ring in the lower.
constexpr uint64_t kReceiveId = uint64_t{1} << 63;

uint64_t work_id(Operation operation, uint32_t bytes) {
  return static_cast<uint64_t>(operation) << 32 | bytes;
}

// Returns the error that a socket would report.
int error_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return ETIMEDOUT;
    case IBV_WC_WR_FLUSH_ERR:
      return ECONNRESET;
    default:
      return EIO;
  }
}

}  // namespace

Result<void> StreamQp::post_receives(uint32_t count) {
  constexpr uint32_t kBatch = 16;
  while (count > 0) {
    const uint32_t batch = std::min(count, kBatch);
    ibv_recv_wr requests[kBatch];
    for (uint32_t i = 0; i < batch; ++i) {
      requests[i] = {};
      requests[i].wr_id = kReceiveId;
      requests[i].next = i + 1 < batch ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad;
    if (const int code = ibv_post_recv(id_->qp, requests, &bad); code != 0) return fail(code);
    count -= batch;
  }
  return {};
}

Result<void> StreamQp::post(const Write& write) {
  ibv_send_wr request{};
  request.wr_id = work_id(write.operation, write.bytes);
  request.sg_list = const_cast<ibv_sge*>(write.pieces.data());
  request.num_sge = write.count;
  request.opcode = write.message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = write.flags;
  if (write.message) store_be(&request.imm_data, write.message->encode());
  request.wr.rdma.remote_addr = write.to.address;
  request.wr.rdma.rkey = write.to.key;
  ibv_send_wr* bad;
  if (const int code = ibv_post_send(id_->qp, &request, &bad); code != 0) {
    break_off(EIO);
    return fail(code);
  }
  return {};
}

// Posts a WRITE of the next bytes of `from`. Small contiguous data go inline in the request; other data are
// copied to the send ring.
Result<void> StreamQp::post_data(Write write, Buffers& from, uint32_t length) {
  if (length <= sizes_.inline_bytes && from.in_a_row() >= length) {
    write.pieces[0] = {reinterpret_cast<uintptr_t>(from.data()), length, 0};
    write.count = 1;
    write.flags = IBV_SEND_INLINE;
    from.skip(length);
  } else {
    for (const RingPiece& piece : ring_->take(length)) {
      if (piece.length == 0) continue;
      from.read(send_memory_.data() + piece.offset, piece.length);
      write.pieces[static_cast<size_t>(write.count++)] = {send_memory_.address() + piece.offset, piece.length,
                                                          send_memory_.lkey()};
    }
    write.bytes = length;
  }
  send_window_->post(write.bytes);
  return post(write);
}

Result<uint32_t> StreamQp::send(Buffers& from, uint32_t most) {
  const auto wanted =
      static_cast<uint32_t>(std::min<size_t>({from.size(), most, send_window_->free_ring_bytes()}));
  const BufferAddress to = send_window_->take(wanted);
  const Message message{Operation::kData, to.length};
  return post_data({.operation = Operation::kData, .message = message, .to = to}, from, to.length).map([&] {
    return to.length;
  });
}

Result<uint32_t> StreamQp::write(Buffers& from, uint32_t most, const BufferAddress& to) {
  const auto length = static_cast<uint32_t>(
      std::min<size_t>({from.size(), most, send_window_->free_ring_bytes(), to.length}));
  return post_data({.operation = Operation::kDirect, .to = to}, from, length).map([&] { return length; });
}

Result<void> StreamQp::announce(uint32_t index, const IomapEntry& entry) {
  const auto bytes = entry.encode(peer_.order);
  const uint64_t behind_table = peer_.table.address + uint64_t{peer_.table.length} * BufferAddress::kBytes;
  const BufferAddress to{behind_table + index * IomapEntry::kBytes, peer_.table.key, IomapEntry::kBytes};
  send_window_->take_credit();
  const iovec all{const_cast<std::byte*>(bytes.data()), bytes.size()};
  Buffers from(&all, 1);
  const Message message{Operation::kIomap, index};
  return post_data({.operation = Operation::kIomap, .message = message, .to = to}, from, bytes.size());
}

size_t StreamQp::peek(Buffers into) const {
  size_t done = 0;
  while (into.size() > 0) {
    const auto piece = receive_window_->peek(into.size(), done);
    if (piece.length == 0) break;
    into.write(receive_memory_.data() + piece.offset, piece.length);
    done += piece.length;
  }
  return done;
}

size_t StreamQp::read(Buffers& into) {
  const size_t done = peek(into);
  if (done == 0) return 0;
  receive_window_->consume(done);
  into.skip(done);
  // Answers now, not at the next call: the peer may be waiting, and the application may not call again soon.
  if (is_up() && (receive_window_->owes_buffer() || receive_window_->owes_credits())) {
    const std::lock_guard lock(poll_mutex_);
    answer_peer();
  }
  return done;
}

Result<void> StreamQp::post_control(Control what, std::optional<Message> message) {
  controls_posted_.fetch_add(1);
  return post({.operation = Operation::kControl, .bytes = static_cast<uint32_t>(what), .message = message});
}

Result<bool> StreamQp::control(Control what) {
  const std::lock_guard lock(poll_mutex_);
  if (!is_up() || !has_control_room()) return false;
  return post_control(what, Message::control(what)).map([] { return true; });
}

void StreamQp::keep_alive() {
  const std::lock_guard lock(poll_mutex_);
  (void)poll();
  if (is_up() && has_control_room()) (void)post_control(Control::kKeepalive, std::nullopt);
}

bool StreamQp::poll() {
  constexpr int kBatch = 16;
  bool any = false;
  for (int count = kBatch; count == kBatch;) {
    ibv_wc completions[kBatch];
    count = ibv_poll_cq(queue_.get(), kBatch, completions);
    if (count < 0) {
      break_off(EIO);
      return true;
    }
    for (const ibv_wc& completion : std::span(completions, static_cast<size_t>(count))) {
      const bool succeeded = completion.status == IBV_WC_SUCCESS;
      if (!succeeded) break_off(error_of(completion.status));
      if (completion.wr_id != kReceiveId) {
        handle_sent(completion);
      } else if (succeeded) {
        handle_received(completion);
      }
    }
    any |= count > 0;
  }
  if (is_up()) {
    if (receives_to_post_ > 0 && !post_receives(std::exchange(receives_to_post_, 0))) break_off(EIO);
    answer_peer();
  }
  return any;
}

void StreamQp::handle_sent(const ibv_wc& completion) {
  const auto bytes = static_cast<uint32_t>(completion.wr_id);
  switch (static_cast<Operation>(completion.wr_id >> 32)) {
    case Operation::kControl:
      controls_done_.fetch_add(1);
      if (bytes == static_cast<uint32_t>(Control::kDisconnect)) drop(kUp | kReadable | kWritable);
      break;
    case Operation::kCredits:
      controls_done_.fetch_add(1);
      break;
    default:
      send_window_->complete(bytes);
  }
}

void StreamQp::handle_received(const ibv_wc& completion) {
  ++receives_to_post_;
  const auto message = (completion.wc_flags & IBV_WC_WITH_IMM) != 0
                           ? Message::decode(load_be<uint32_t>(&completion.imm_data))
                           : std::nullopt;
  if (message) {
    handle_message(*message, completion.byte_len);
  } else {
    break_off(EPROTO);
  }
}

void StreamQp::handle_message(Message message, uint32_t written) {
  switch (message.operation) {
    case Operation::kData:
      if (!receive_window_->arrive(message.value)) break_off(EPROTO);
      break;
    case Operation::kCredits:
      send_window_->set_limit(static_cast<uint16_t>(message.value));
      if (written == BufferAddress::kBytes) {
        const auto granted = grants_->take();
        if (granted && !send_window_->grant(*granted)) break_off(EPROTO);
      }
      break;
    case Operation::kControl:
      handle_control(static_cast<Control>(message.value));
      break;
    default:
      break;  // a mapped buffer: its entry is read when it is used
  }
}

void StreamQp::handle_control(Control what) {
  if (what == Control::kDisconnect || (what == Control::kShutdown && !is_writable())) {
    drop(kUp | kReadable | kWritable);
  } else if (what == Control::kShutdown) {
    drop(kReadable);
  }
}

void StreamQp::answer_peer() {
  while (is_up() && has_control_room() &&
         (receive_window_->owes_buffer() || receive_window_->owes_credits())) {
    grant();
  }
}

// Grants credits to the peer, and half of the receive ring if it is free.
void StreamQp::grant() {
  const uint32_t slot = controls_posted_.fetch_add(1) % kControlSlots;
  Write write{.operation = Operation::kCredits};
  std::array<std::byte, BufferAddress::kBytes> bytes;
  if (receive_window_->owes_buffer()) {
    const uint32_t offset = receive_window_->grant_buffer();
    bytes = BufferAddress{receive_memory_.address() + offset, receive_memory_.rkey(),
                          receive_window_->ring_bytes() / 2}
                .encode(peer_.order);
    ibv_sge& piece = write.pieces[0];
    write.count = 1;
    piece.length = BufferAddress::kBytes;
    if (sizes_.inline_bytes >= bytes.size()) {
      write.flags = IBV_SEND_INLINE;
      piece.addr = reinterpret_cast<uintptr_t>(bytes.data());
    } else {
      std::byte* const at = send_memory_.data() + sizes_.send_bytes + slot * BufferAddress::kBytes;
      std::memcpy(at, bytes.data(), bytes.size());
      piece.addr = reinterpret_cast<uintptr_t>(at);
      piece.lkey = send_memory_.lkey();
    }
    write.to = {peer_.table.address + uint64_t{peers_entry_} * BufferAddress::kBytes, peer_.table.key, 0};
    peers_entry_ = (peers_entry_ + 1) % peer_.table.length;
  }
  write.message = Message{Operation::kCredits, receive_window_->grant_credits()};
  (void)post(write);
}

}  // namespace verbena::rsockets
