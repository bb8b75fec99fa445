// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

}  // namespace verbena::rdma_netlink
