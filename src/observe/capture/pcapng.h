// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace verbena::capture {

// Nanoseconds since 1970, the time base of capture files.
using WallTime = std::chrono::nanoseconds;

// Writes the blocks of a pcapng file (draft-ietf-opsawg-pcapng) into a buffer, in this machine's byte order
// and with times in nanoseconds. One section, Ethernet interfaces only. Blocks are written in the order of
// the calls: section() first, then interfaces.
class PcapngWriter {
 public:
  enum class Direction : uint8_t { kInbound = 1, kOutbound = 2 };
  struct Packet {
    uint32_t interface = 0;
    WallTime time{};
    ConstBytes frame;         // the captured part, from the beginning of the frame
    uint32_t wire_bytes = 0;  // length on the wire
    std::string_view comment;
    Direction direction = Direction::kOutbound;
  };
  struct Statistics {
    WallTime began{};
    WallTime ended{};
    uint64_t received = 0;  // packets that the capture saw
    uint64_t dropped = 0;   // packets that the file lacks because a ring was full
  };

  // Begins the file. `application`: the name of the capturing program.
  void section(std::string_view application);
  // Describes an interface. Interfaces are numbered from 0 in the order of the calls. `snap_bytes`: maximum
  // captured bytes of a frame.
  void interface(std::string_view name, std::string_view description, uint32_t snap_bytes);
  void packet(const Packet& packet);
  void statistics(uint32_t interface, const Statistics& statistics);

  // Returns the blocks written since clear(). The caller appends them to the file, then calls clear().
  ConstBytes pending() const { return buffer_; }
  void clear() { buffer_.clear(); }

 private:
  class Block;
  std::vector<std::byte> buffer_;
};

}  // namespace verbena::capture
