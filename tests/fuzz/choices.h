// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"

namespace verbena::fuzz {

// Interprets a fuzzer's input as a list of choices; after its end all are zero. Mutating one choice leaves
// the others unchanged.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : input_(std::as_bytes(std::span(data, size))) {}
  explicit Choices(ConstBytes input) : input_(input) {}

  bool empty() const { return input_.empty(); }
  uint8_t byte() { return number<uint8_t>(); }
  bool yes() { return (byte() & 1) != 0; }
  // Returns a number below `end`. REQUIRES: 0 < end <= 256.
  uint32_t below(uint32_t end) { return byte() % end; }

  template <class Number>
  Number number() {
    Number value{};
    fill(value);
    return value;
  }
  // Fills the value with input bytes, which may be invalid for its type.
  template <class Value>
  void fill(Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const ConstBytes taken = bytes(sizeof value);
    std::memset(static_cast<void*>(&value), 0, sizeof value);
    if (!taken.empty()) std::memcpy(static_cast<void*>(&value), taken.data(), taken.size());
  }
  // Returns `count` bytes, or fewer at the end of the input.
  ConstBytes bytes(size_t count) {
    const ConstBytes taken = input_.first(std::min(count, input_.size()));
    input_ = input_.subspan(taken.size());
    return taken;
  }
  ConstBytes rest() { return bytes(input_.size()); }

 private:
  ConstBytes input_;
};

}  // namespace verbena::fuzz
