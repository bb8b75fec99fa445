// SPDX-License-Identifier: Apache-2.0
// Sending and receiving.
#include <poll.h>

#include "libraries/rsockets/stream.h"

namespace verbena::rsockets {
namespace {

// The maximum bytes in a message. Growing message sizes, starting small, would be slower here: a message
// costs its sender more than waiting for a larger one costs the reader.
constexpr uint32_t kPiece = 65536;

}  // namespace

// Returns the connection if it is or was established. Waits while it is being set up.
Result<StreamQp*> Stream::opened(int flags) {
  while (is_opening()) {
    if (!may_block(flags)) return fail(EAGAIN);
    if (const auto waited = wait_for(*this, kOpened); !waited) return fail(waited.error().code);
  }
  if (phase() == Phase::kConnected) return qp_.get();
  const std::lock_guard lock(mutex_);
  return fail(error_ != 0 ? std::exchange(error_, 0) : ENOTCONN);
}

Result<size_t> Stream::receive(Buffers into, int flags, Address* source) {
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) return fail(EOPNOTSUPP);
  const auto qp = opened(flags);
  if (!qp) return fail(qp.error().code);
  if (into.size() == 0) return 0;
  const bool waits = may_block(flags);
  const auto lock = turn(receive_mutex_, waits);
  if (!lock) return fail(EAGAIN);
  StreamQp& peer = **qp;
  size_t done = 0;
  for (;;) {
    // Check for the end before reading, so that bytes that arrived before the end are not missed.
    const bool ended = !peer.is_readable();
    done += (flags & MSG_PEEK) != 0 ? peer.peek(into) : peer.read(into);
    const bool enough = done > 0 && ((flags & MSG_WAITALL) == 0 || (flags & MSG_PEEK) != 0);
    if (enough || into.size() == 0) break;
    if (ended) {
      const int error = done > 0 ? 0 : peer.take_error();
      if (error != 0) return fail(error);
      break;
    }
    if (const auto waited = await(*this, POLLIN, waits); !waited) {
      if (done > 0) break;
      return fail(waited.error().code);
    }
  }
  if (source != nullptr) {
    if (const auto address = peer_address()) *source = *address;
  }
  return done;
}

int Stream::sending_error(StreamQp& qp) const {
  if (const int error = qp.take_error(); error != 0) return error;
  return shut_.load(std::memory_order_relaxed) ? EPIPE : ECONNRESET;
}

// Waits until a message may be sent.
Result<void> Stream::await_sending(StreamQp& qp, bool may_block) {
  for (;;) {
    if (!qp.is_writable()) return fail(sending_error(qp));
    if (qp.window().may_send()) return {};
    if (const auto waited = await(*this, POLLOUT, may_block); !waited) return fail(waited.error().code);
  }
}

Result<void> Stream::announce_maps(StreamQp& qp, bool may_block) {
  while (maps_.has_news()) {
    if (auto ready = await_sending(qp, may_block); !ready) return ready;
    const auto news = maps_.next_news();
    if (!news) break;
    if (auto sent = qp.announce(news->index, news->entry); !sent) return sent;
  }
  return {};
}

// Sends `from` in pieces: send_piece() sends one and returns its length, 0 to stop. An error after some bytes
// were sent returns their number.
template <class SendPiece>
Result<size_t> Stream::send_pieces(Buffers& from, int flags, SendPiece send_piece) {
  const auto qp = opened(flags);
  if (!qp) return fail(qp.error().code);
  const bool waits = may_block(flags);
  const auto lock = turn(send_mutex_, waits);
  if (!lock) return fail(EAGAIN);
  StreamQp& peer = **qp;
  if (auto announced = announce_maps(peer, waits); !announced) return fail(announced.error().code);
  size_t done = 0;
  while (from.size() > 0) {
    auto sent = Result<uint32_t>(0);
    if (auto ready = await_sending(peer, waits); !ready) {
      sent = fail(ready.error().code);
    } else {
      sent = send_piece(peer, done);
    }
    if (!sent && done == 0) return fail(sent.error().code);
    if (!sent || *sent == 0) break;
    done += *sent;
  }
  return done;
}

Result<size_t> Stream::send(Buffers from, int flags, const Address* destination) {
  if ((flags & MSG_OOB) != 0) return fail(EOPNOTSUPP);
  if (destination != nullptr) return fail(EISCONN);
  return send_pieces(from, flags, [&](StreamQp& peer, size_t) { return peer.send(from, kPiece); });
}

Result<off_t> Stream::map(void* memory, size_t length, int protection, off_t offset) {
  if (phase() != Phase::kConnected) return fail(EINVAL);
  return maps_.map(id_->qp->pd, memory, length, protection, offset, qp_->peers_iomap_entries());
}

// Stops early where the peer's mappings end.
Result<size_t> Stream::write_mapped(const void* from, size_t bytes, off_t offset, int flags) {
  const iovec all{const_cast<void*>(from), bytes};
  Buffers left(&all, 1);
  return send_pieces(left, flags, [&](StreamQp& peer, size_t done) -> Result<uint32_t> {
    const auto target = peer.mapped_by_peer().find(static_cast<uint64_t>(offset) + done);
    if (!target) return 0;
    return peer.write(left, kPiece, *target);
  });
}

}  // namespace verbena::rsockets
