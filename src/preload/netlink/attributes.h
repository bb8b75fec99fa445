// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

using Bytes = std::vector<std::byte>;

// Builds the attributes of a netlink message: each has a length, a type, a value, and padding to four bytes.
// Not thread-safe.
class Attributes {
 public:
  Attributes& put_u8(uint16_t type, uint8_t value) { return put_value(type, value); }
  Attributes& put_u32(uint16_t type, uint32_t value) { return put_value(type, value); }
  Attributes& put_u64(uint16_t type, uint64_t value) { return put_value(type, value); }
  // Adds a string with its terminating zero.
  Attributes& put_text(uint16_t type, std::string_view text);
  Attributes& put_nest(uint16_t type, const Attributes& inner);
  // Adds an attribute with any value. REQUIRES: the attribute's length fits in 16 bits
  Attributes& put(uint16_t type, std::span<const std::byte> value);

  const Bytes& bytes() const { return bytes_; }
  // Appends the attributes of `other`.
  void append(const Attributes& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
  }

 private:
  template <class Value>
  Attributes& put_value(uint16_t type, const Value& value) {
    return put(type, std::as_bytes(std::span<const Value, 1>(&value, 1)));
  }

  Bytes bytes_;
};

// Adds the process that owns an object to the object's attributes. The reader finds the process's name by its
// PID (/proc/PID/comm). If the agent does not see the process (PID 0), adds the program's name instead.
inline void put_process(Attributes& entry, int pid, std::string_view program) {
  if (pid != 0) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
  } else {
    entry.put_text(RDMA_NLDEV_ATTR_RES_KERN_NAME, program);
  }
}

}  // namespace verbena::rdma_netlink
