// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "adapter/memory/region.h"
#include "adapter/transport/packet_io.h"
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

// What a process shows to those of this host that its QPs are connected to, so that they can carry out READs
// and WRITEs in its memory by themselves, while it sleeps: its keys, and which QPs take what. It writes the
// board, the others map it read-only.
//
// The board only ever says "you may". Whatever is not on it, or not plain, goes by packets, and its owner
// decides. So a key that finds no place here is merely slower.
inline constexpr uint32_t kBoardMagic = 0x4452'5256;  // "VRRD"
inline constexpr uint32_t kBoardVersion = 3;          // a change of anything below is another version
inline constexpr uint32_t kBoardKeys = 2048;
inline constexpr uint32_t kBoardQps = 1024;
inline constexpr uint32_t kBoardProbes = 8;  // so many places there are for each name, one after the other

struct Board {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // of all
  BoardLine keys[kBoardKeys];
  BoardLine qps[kBoardQps];
};
static_assert(sizeof(Board) == kCacheLine * (1 + kBoardKeys + kBoardQps));
static_assert(offsetof(Board, keys) == kCacheLine);
static_assert(std::is_standard_layout_v<Board> && std::is_trivially_destructible_v<Board>);

// Makes a board of memory that is all zero.
void format(Board& board);
// REQUIRES: there are sizeof(Board) bytes, and its owner cannot take them away
bool is_formatted(const Board& board);

// A QP that takes requests now.
struct BoardQp {
  uint32_t qpn = 0;
  memory::PdId pd = 0;
  memory::Access access = 0;
  uint32_t destination = 0;  // the QP that it is connected to
  uint32_t receive_psn = 0;  // which it began with
  uint32_t send_psn = 0;     // likewise, as soon as it sends
  bool takes_reads = false;  // READs and atomics: max_dest_rd_atomic is not 0
};

// The owner's side. Keys and QPs may be written by one thread each at a time.
class BoardWriter {
 public:
  // REQUIRES: the board is formatted, and has no lines
  explicit BoardWriter(Board& board) : board_(board) {}

  // Only what others may use by themselves: memory with remote rights, and windows that are bound.
  void publish(const memory::Opening& opening);
  void withdraw_key(uint32_t key);
  void publish(const BoardQp& qp);
  void withdraw_qp(uint32_t qpn);

 private:
  Board& board_;
  // What is written where; the board itself is not read.
  std::array<uint32_t, kBoardKeys> keys_{};
  std::array<uint32_t, kBoardQps> qps_{};
};

// What another process's QP asks of the board's owner.
struct AccessRequest {
  uint32_t qpn = 0;  // of the owner
  uint32_t from = 0;
  uint32_t first_psn = 0;  // that `from` began with
  uint32_t rkey = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  memory::Access wanted = 0;  // one right
};

// A key as the board shows it: which part of its owner's memory it is for. When it has been withdrawn since,
// or changed, the generation is another, and something else may lie there.
struct ShownKey {
  uint32_t key = 0;
  uint64_t generation = 0;
  uint64_t base = 0;
  uint64_t length = 0;
  memory::Access access = 0;
  bool operator==(const ShownKey&) const = default;
};
std::optional<ShownKey> find_key(const Board& board, uint32_t rkey);

// Whether the owner's QP `connection.from` still has this connection: then what it left for rendezvous is
// there. The answer differs after the QP has been changed.
std::optional<uint64_t> find_connected(const Board& board, const transport::Connection& connection);

struct FoundAccess {
  uint64_t at = 0;  // where in the owner's memory the request's bytes lie
  uint32_t rkey = 0;
  uint64_t generation = 0;  // of the key, as in ShownKey
  bool operator==(const FoundAccess&) const = default;
};

// If the owner would carry the request out, by the same checks as its own (adapter/transport/responder.cc).
// Nothing: it might refuse; it may say so itself.
std::optional<FoundAccess> find_access(const Board& board, const AccessRequest& request);

// The same, for who asks again and again by the same QPs and keys: of the last few it remembers what the
// board's lines said, which holds for as long as those have not been written. For one thread at a time.
class AccessFinder {
 public:
  // REQUIRES: the board outlives it
  explicit AccessFinder(const Board& board) : board_(board) {}

  std::optional<FoundAccess> find(const AccessRequest& request) {
    std::optional<Allowed>& remembered = remembered_[(request.rkey >> 8) % kRemembered];
    if (!remembered || !remembered->answers(request) || !remembered->is_current()) [[unlikely]] {
      if (!look(request, remembered)) return std::nullopt;
    }
    return remembered->within_range(request);
  }

  // What the lines say of a request, apart from its range: it is allowed.
  struct Allowed {
    const BoardLine* qp_line = nullptr;
    const BoardLine* key_line = nullptr;
    uint32_t qp_sequence = 0;
    uint32_t key_sequence = 0;
    AccessRequest request;
    memory::Opening opening;
    uint64_t generation = 0;

    bool answers(const AccessRequest& other) const {
      return request.rkey == other.rkey && request.qpn == other.qpn && request.from == other.from &&
             request.first_psn == other.first_psn && request.wanted == other.wanted;
    }
    bool is_current() const { return qp_line->is_still(qp_sequence) && key_line->is_still(key_sequence); }
    std::optional<FoundAccess> within_range(const AccessRequest& asked) const {
      const std::byte* const at = opening.at(asked.address, asked.bytes);
      // A region that holds all addresses has some that are nobody's.
      const auto begin = reinterpret_cast<uintptr_t>(at);
      if (at == nullptr || asked.bytes == 0 || asked.bytes > UINTPTR_MAX - begin) return std::nullopt;
      return FoundAccess{.at = begin, .rkey = asked.rkey, .generation = generation};
    }
  };

 private:
  static constexpr size_t kRemembered = 8;

  bool look(const AccessRequest& request, std::optional<Allowed>& remembered) const;

  const Board& board_;
  std::array<std::optional<Allowed>, kRemembered> remembered_;
};

}  // namespace verbena::shm
