// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/peer.h"

#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/net/udp/system_calls.h"
#include "adapter/xrc/peer_messages.h"

namespace verbena::engine {

namespace {

enum class Outcome : uint8_t { kSent, kFull, kLost };

Outcome send_now(int socket, std::span<const iovec> pieces) {
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(pieces.data());
  header.msg_iovlen = pieces.size();
  for (;;) {
    if (net::system_calls::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Outcome::kSent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? Outcome::kFull : Outcome::kLost;
  }
}

}  // namespace

// Bypasses the C library, whose call is a cancellation point: the shard's lock is held.
bool PeerLink::has_hung_up() const {
  pollfd entry{fd(), 0, 0};  // hang-ups are reported without being requested
  const timespec now{};
  return ::syscall(SYS_ppoll, &entry, 1L, &now, nullptr, 0L) == 1;
}

void PeerLink::open(ForeignSocket socket) {
  socket_ = std::move(socket);
  flush();
}

bool PeerLink::send(std::span<const iovec> pieces) {
  if (lost_) return false;
  if (!is_open() || has_waiting()) return keep(pieces);
  switch (send_now(fd(), pieces)) {
    case Outcome::kSent:
      return true;
    case Outcome::kFull:
      return keep(pieces);
    case Outcome::kLost:
      lost_ = true;
  }
  return false;
}

bool PeerLink::keep(std::span<const iovec> pieces) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  if (waiting_bytes_ + bytes > kMaxWaiting) return false;
  try {
    std::vector<std::byte> message;
    message.reserve(bytes);
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      message.insert(message.end(), from, from + piece.iov_len);
    }
    waiting_.push_back(std::move(message));
  } catch (const std::bad_alloc&) {
    return false;
  }
  waiting_bytes_ += bytes;
  return true;
}

void PeerLink::flush() {
  while (is_open() && !lost_ && has_waiting()) {
    std::vector<std::byte>& message = waiting_.front();
    const iovec piece{message.data(), message.size()};
    const Outcome outcome = send_now(fd(), {&piece, 1});
    if (outcome == Outcome::kFull) return;
    if (outcome == Outcome::kLost) lost_ = true;
    waiting_bytes_ -= message.size();
    waiting_.pop_front();
  }
}

ConstBytes PeerLink::receive(Bytes buffer) {
  if (!is_open() || lost_) return {};
  const auto message = socket_.look(buffer, {});
  if (!message && message.error().code == EAGAIN) return {};
  // Peers never send descriptors.
  lost_ = !message || message->bytes == 0 || message->is_longer || message->has_more_files;
  if (lost_) return {};
  socket_.drop();
  return buffer.first(message->bytes);
}

void Peer::abandon() {
  entry_.forget();
  link_.abandon();
}

uint32_t Peer::receive(uint32_t budget) {
  std::array<std::byte, kMaxPeerMessage> buffer;
  uint32_t received = 0;
  while (received < budget) {
    const ConstBytes message = link_.receive(buffer);
    if (message.empty()) break;
    ++received;
    if (!take(message)) link_.lose();
  }
  if (received > 0) link_.flush();  // a peer that has written has probably read
  return received;
}

bool Peer::say(std::span<const iovec> pieces) {
  const bool said = link_.send(pieces);
  if (link_.is_lost() || link_.has_waiting()) keeper_.needs_care();
  return said;
}

}  // namespace verbena::engine
