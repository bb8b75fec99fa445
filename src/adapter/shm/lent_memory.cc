// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/lent_memory.h"

#include <cstring>

#include "adapter/shm/local_packets.h"

namespace verbena::engine {

// It is copied first: the other process may go on changing it.
bool LentMemory::take(ConstBytes list) {
  constexpr size_t kPiece = sizeof(shm::LentPiece);
  if (list.empty() || list.size() % kPiece != 0 || list.size() > sizeof pieces_) return false;
  std::memcpy(pieces_.data(), list.data(), list.size());
  std::atomic_signal_fence(std::memory_order_seq_cst);
  count_ = static_cast<uint32_t>(list.size() / kPiece);
  bytes_ = 0;
  for (const shm::LentPiece& piece : std::span(pieces_).first(count_)) {
    if (piece.bytes > kMaxLentBytes - bytes_) return false;
    bytes_ += static_cast<uint32_t>(piece.bytes);
  }
  return bytes_ > 0;
}

bool LentMemory::fetch(const transport::Connection& connection, std::span<const ConstBytes> to) {
  if (memory_ == nullptr) return false;
  const bool done = memory_->fetch(connection, std::span(pieces_).first(count_), to);
  if (!done) tell();
  return done;
}

}  // namespace verbena::engine
