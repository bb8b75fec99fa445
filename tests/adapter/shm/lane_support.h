// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "adapter/shm/layout.h"
#include "base/bytes.h"

namespace verbena::shm {

// Zeroed memory of exactly the size of a T, so that a sanitizer detects accesses beyond it.
template <class T>
class Zeroed {
 public:
  Zeroed() : at_(static_cast<T*>(::operator new (sizeof(T), std::align_val_t{alignof(T)}))) {
    std::memset(static_cast<void*>(at_), 0, sizeof(T));
  }
  ~Zeroed() { ::operator delete (at_, std::align_val_t{alignof(T)}); }
  Zeroed(const Zeroed&) = delete;
  Zeroed& operator=(const Zeroed&) = delete;

  T& operator*() const { return *at_; }
  T* operator->() const { return at_; }
  Bytes bytes() const { return {reinterpret_cast<std::byte*>(at_), sizeof(T)}; }

 private:
  T* at_;
};

// Fills with bytes that depend on their position and on `which`.
inline void fill_pattern(Bytes to, uint32_t which) {
  uint32_t x = which * 2'654'435'761u + 1;
  for (std::byte& b : to) {
    x = x * 1'664'525u + 1'013'904'223u;
    b = static_cast<std::byte>(x >> 24);
  }
}

inline std::vector<std::byte> pattern(uint32_t which, size_t bytes) {
  std::vector<std::byte> made(bytes);
  fill_pattern(made, which);
  return made;
}

inline bool is_pattern(ConstBytes given, uint32_t which, size_t bytes) {
  return given.size() == bytes && std::ranges::equal(given, pattern(which, bytes));
}

inline bool lies_in(ConstBytes given, ConstBytes memory) {
  return given.data() >= memory.data() && given.data() + given.size() <= memory.data() + memory.size();
}

}  // namespace verbena::shm
