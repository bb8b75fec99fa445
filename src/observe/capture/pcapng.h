// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace verbena::capture {

// Nanoseconds since 1970, as a capture says when something was.
using WallTime = std::chrono::nanoseconds;

// Writes the blocks of a pcapng file (draft-ietf-opsawg-pcapng) into a buffer, in this machine's byte order,
// with times in nanoseconds. One section, and interfaces of Ethernet. The order of the calls is the order in
// the file: section() first, then interfaces.
class PcapngWriter {
 public:
  enum class Direction : uint8_t { kInbound = 1, kOutbound = 2 };
  struct Packet {
    uint32_t interface = 0;
    WallTime time{};
    ConstBytes frame;         // what was captured of it
    uint32_t wire_bytes = 0;  // what it was on the wire
    std::string_view comment;
    Direction direction = Direction::kOutbound;
  };
  struct Statistics {
    WallTime began{};
    WallTime ended{};
    uint64_t received = 0;  // packets that passed
    uint64_t dropped = 0;   // that were left out for want of room
  };

  void section(std::string_view application);
  // Interfaces count from 0 on. `snap_bytes`: what is captured of a frame at most.
  void interface(std::string_view name, std::string_view description, uint32_t snap_bytes);
  void packet(const Packet& packet);
  void statistics(uint32_t interface, const Statistics& statistics);

  // What is to go into the file next.
  ConstBytes pending() const { return buffer_; }
  void clear() { buffer_.clear(); }

 private:
  class Block;
  std::vector<std::byte> buffer_;
};

}  // namespace verbena::capture
