// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/support/memory.h"
#include "base/random.h"

namespace verbena::transport {

// The layout of a message in a buffer: pieces of equal length (the last one takes the rest), with gaps
// between them that must not be changed.
struct Layout {
  static constexpr std::byte kPoison{0xa5};

  uint32_t length = 0;
  uint32_t pieces = 1;
  uint32_t gap = 0;

  static Layout draw(Random& random, uint32_t length) {
    static constexpr uint32_t kPieces[] = {1, 1, 1, 1, 2, 3, 7, queues::kMaxSge};
    Layout layout;
    layout.length = length;
    layout.pieces = kPieces[random.below(std::size(kPieces))];
    layout.gap = layout.pieces == 1 ? 0 : static_cast<uint32_t>(random.below(40));
    return layout;
  }

  uint32_t span() const { return length + (pieces - 1) * gap; }
  uint32_t piece_length(uint32_t i) const {
    const uint32_t each = length / pieces;
    return i + 1 < pieces ? each : length - each * (pieces - 1);
  }
  uint32_t piece_offset(uint32_t i) const { return i * (length / pieces + gap); }

  uint32_t fill(const Buffer& buffer, uint32_t at, ibv_sge* list) const {
    for (uint32_t i = 0; i < pieces; ++i) list[i] = buffer.sge(at + piece_offset(i), piece_length(i));
    return pieces;
  }
  void poison(std::byte* at) const { std::memset(at, static_cast<int>(kPoison), span()); }

  // Returns the message's bytes: in place if it has one piece, else gathered into `scratch`.
  const std::byte* gather(const std::byte* at, std::vector<std::byte>& scratch) const {
    if (pieces == 1) return at;
    scratch.resize(std::max<size_t>(scratch.size(), length));
    uint32_t done = 0;
    for (uint32_t i = 0; i < pieces; ++i) {
      std::copy_n(at + piece_offset(i), piece_length(i), scratch.data() + done);
      done += piece_length(i);
    }
    return scratch.data();
  }

  // Whether the first `bytes` bytes in this layout equal `message`, and all other bytes are untouched.
  bool holds(const std::byte* at, const std::byte* message, uint32_t bytes) const {
    for (uint32_t i = 0; i < pieces; ++i) {
      const uint32_t begin = piece_offset(i);
      const uint32_t part = std::min(bytes, piece_length(i));
      if (!std::equal(message, message + part, at + begin)) return false;
      message += part;
      bytes -= part;
      const uint32_t next = i + 1 < pieces ? piece_offset(i + 1) : span();
      if (!untouched(at + begin + part, next - begin - part)) return false;
    }
    return bytes == 0;
  }

 private:
  static bool untouched(const std::byte* at, uint32_t bytes) {
    return std::all_of(at, at + bytes, [](std::byte b) { return b == kPoison; });
  }
};

}  // namespace verbena::transport
