// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "management/cm/messages.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// Reads message fields by their byte offset in the datagram's data. FieldWriter has the same functions, so
// that a message's layout is written once (layouts.h) for both directions. Bits are counted as in the
// specification, from the byte's most significant bit.

class FieldReader {
 public:
  explicit FieldReader(const std::byte* data) : data_(data) {}

  void u8(size_t at, uint8_t& value) { value = static_cast<uint8_t>(data_[at]); }
  void u16(size_t at, uint16_t& value) { value = load_be<uint16_t>(data_ + at); }
  void u24(size_t at, uint32_t& value) { value = load_be24(data_ + at); }
  void u32(size_t at, uint32_t& value) { value = load_be<uint32_t>(data_ + at); }
  void u64(size_t at, uint64_t& value) { value = load_be<uint64_t>(data_ + at); }
  // The upper 20 bits of three bytes.
  void u20(size_t at, uint32_t& value) { value = load_be24(data_ + at) >> 4; }
  template <class T>
  void bits(size_t at, unsigned first, unsigned width, T& value) {
    value = static_cast<T>(static_cast<unsigned>(data_[at]) >> (8 - first - width) & ((1u << width) - 1));
  }
  void address(size_t at, roce::Address& value) { std::memcpy(value.bytes.data(), data_ + at, 16); }
  template <size_t N>
  void bytes(size_t at, std::array<uint8_t, N>& value) {
    std::memcpy(value.data(), data_ + at, N);
  }

 private:
  const std::byte* data_;
};

class FieldWriter {
 public:
  // REQUIRES: all bytes at `data` are zero
  explicit FieldWriter(std::byte* data) : data_(data) {}

  void u8(size_t at, uint8_t value) { data_[at] = std::byte{value}; }
  void u16(size_t at, uint16_t value) { store_be(data_ + at, value); }
  void u24(size_t at, uint32_t value) { store_be24(data_ + at, value); }
  void u32(size_t at, uint32_t value) { store_be(data_ + at, value); }
  void u64(size_t at, uint64_t value) { store_be(data_ + at, value); }
  void u20(size_t at, uint32_t value) { store_be24(data_ + at, value << 4); }
  template <class T>
  void bits(size_t at, unsigned first, unsigned width, T value) {
    const unsigned masked = static_cast<unsigned>(value) & ((1u << width) - 1);
    data_[at] |= static_cast<std::byte>(masked << (8 - first - width));
  }
  void address(size_t at, const roce::Address& value) { std::memcpy(data_ + at, value.bytes.data(), 16); }
  template <size_t N>
  void bytes(size_t at, const std::array<uint8_t, N>& value) {
    static_assert(N <= 232);
    std::memcpy(data_ + at, value.data(), N);
  }

 private:
  std::byte* data_;
};

// Copies private data into a message's field. Returns false, without copying, if the data is longer than the
// field. REQUIRES: the field is zero
template <size_t N>
bool put(ConstBytes from, PrivateData<N>& to) {
  if (from.size() > N) return false;
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return true;
}

}  // namespace verbena::cm
