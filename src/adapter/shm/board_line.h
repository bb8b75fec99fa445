// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cache_line.h"

namespace verbena::shm {

// What a board's line is made of. Tests make lines of words that let a scheduler step in between any two
// accesses; the line is a template for that reason alone.
struct BoardFormat {
  using Word = std::atomic<uint32_t>;
  using Value = uint64_t;
  using ValueWord = std::atomic<uint64_t>;
  static constexpr size_t kWords = 7;
};

// Some words that one thread writes and any process reads: the reader gets words that belong together.
template <class Format>
class alignas(kCacheLine) BasicBoardLine {
 public:
  static constexpr size_t kWords = Format::kWords;
  // The first is the line's name; 0: it says nothing.
  using Words = std::array<typename Format::Value, kWords>;

  // One thread at a time.
  void write(const Words& words) {
    const uint32_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    // As in memory::PublishedOpening: each release keeps the odd number before the word.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_seq_cst);
  }

  // False: it is being written. (Its writer may have died in the midst of it, so nobody waits.)
  // `sequence`: another one after each write.
  bool read(Words& words, uint32_t& sequence) const {
    const uint32_t before = sequence = sequence_.load(std::memory_order_seq_cst);
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    return (before & 1) == 0 && sequence_.load(std::memory_order_relaxed) == before;
  }
  // Whether it still holds what was read with that sequence.
  bool is_still(uint32_t sequence) const { return sequence_.load(std::memory_order_seq_cst) == sequence; }

 private:
  typename Format::Word sequence_{0};  // odd while it is being written
  std::array<typename Format::ValueWord, kWords> words_{};
};

using BoardLine = BasicBoardLine<BoardFormat>;
static_assert(sizeof(BoardLine) == kCacheLine);

}  // namespace verbena::shm
