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

// The types and the number of the words in a line of the export table (Board). BasicBoardLine is a template
// only for tests: these use word types that let a test's scheduler switch threads between any two accesses.
struct BoardFormat {
  using Word = std::atomic<uint32_t>;
  using Value = uint64_t;
  using ValueWord = std::atomic<uint64_t>;
  static constexpr size_t kWords = 7;
};

// One line of the export table: words that one thread writes and any process reads, as a seqlock. So a reader
// never gets a mixture of words from different writes.
template <class Format>
class alignas(kCacheLine) BasicBoardLine {
 public:
  static constexpr size_t kWords = Format::kWords;
  // The first word is the line's name: a key or a QP number. 0: the line is empty.
  using Words = std::array<typename Format::Value, kWords>;

  // Replaces the words. One thread at a time.
  void write(const Words& words) {
    const uint32_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    // As in memory::PublishedOpening: each release keeps the odd number before the word.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_seq_cst);
  }

  // Reads the words. Returns false if the line is being written; the caller must not wait for the end of the
  // write, because the writer may have died during it. Sets `sequence` to a number that differs after each
  // write.
  bool read(Words& words, uint32_t& sequence) const {
    const uint32_t before = sequence = sequence_.load(std::memory_order_seq_cst);
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    return (before & 1) == 0 && sequence_.load(std::memory_order_relaxed) == before;
  }
  // Returns whether nothing was written since read() returned this sequence.
  bool is_still(uint32_t sequence) const { return sequence_.load(std::memory_order_seq_cst) == sequence; }

 private:
  typename Format::Word sequence_{0};  // odd while it is being written
  std::array<typename Format::ValueWord, kWords> words_{};
};

using BoardLine = BasicBoardLine<BoardFormat>;
static_assert(sizeof(BoardLine) == kCacheLine);

// The export table: the memory keys of a process, and the requests that each of its QPs accepts. By this
// table, other processes of this host READ and WRITE the process's memory directly, even while it sleeps, if
// its QPs are connected to theirs. The process itself writes the table. The others map it read-only.
//
// The table only permits. A request that finds no permission here goes as packets, and the owner decides. So
// requests for a key that does not fit into the table work, too, only more slowly.
inline constexpr uint32_t kBoardMagic = 0x4452'5256;  // "VRRD"
inline constexpr uint32_t kBoardVersion = 3;          // a change of anything below is another version
inline constexpr uint32_t kBoardKeys = 2048;
inline constexpr uint32_t kBoardQps = 1024;
// The number of lines, one after the other, in which a name may lie. If all are taken, it is left out.
inline constexpr uint32_t kBoardProbes = 8;

struct Board {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // sizeof(Board)
  BoardLine keys[kBoardKeys];
  BoardLine qps[kBoardQps];
};
static_assert(sizeof(Board) == kCacheLine * (1 + kBoardKeys + kBoardQps));
static_assert(offsetof(Board, keys) == kCacheLine);
static_assert(std::is_standard_layout_v<Board> && std::is_trivially_destructible_v<Board>);

// Writes the table's header. REQUIRES: the memory is all zero
void format(Board& board);
// Returns whether the memory begins with the header of a table of this version. REQUIRES: there are
// sizeof(Board) bytes, and the owner cannot shorten the file
bool is_formatted(const Board& board);

// A QP that accepts requests now, as the export table shows it.
struct BoardQp {
  uint32_t qpn = 0;
  memory::PdId pd = 0;
  memory::Access access = 0;
  uint32_t destination = 0;  // the QP that it is connected to
  uint32_t receive_psn = 0;  // the first PSN that it expects
  uint32_t send_psn = 0;     // the first PSN that it sends; valid only once it sends
  bool takes_reads = false;  // whether it accepts READs and atomics: max_dest_rd_atomic is not 0
};

// Writes the owner's export table. One thread at a time may write keys, and one may write QPs.
class BoardWriter {
 public:
  // REQUIRES: the board is formatted, and its lines are empty
  explicit BoardWriter(Board& board) : board_(board) {}

  // Adds or replaces a key. Does nothing if the key has no remote rights, or if its eight lines are taken.
  void publish(const memory::Opening& opening);
  void withdraw_key(uint32_t key);
  void publish(const BoardQp& qp);
  void withdraw_qp(uint32_t qpn);

 private:
  Board& board_;
  // The name in each line; 0: the line is empty. The board itself is not read.
  std::array<uint32_t, kBoardKeys> keys_{};
  std::array<uint32_t, kBoardQps> qps_{};
};

// A request of another process's QP to the memory of the board's owner.
struct AccessRequest {
  uint32_t qpn = 0;  // the owner's QP, which responds
  uint32_t from = 0;
  uint32_t first_psn = 0;  // the first PSN that `from` sent to it
  uint32_t rkey = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  // The right that is needed: one of IBV_ACCESS_REMOTE_READ, _WRITE and _ATOMIC.
  memory::Access wanted = 0;
};

// A key as the export table shows it, with the part of its owner's memory that it covers. The generation
// changes when the owner withdraws or changes the key. Afterwards, other memory may lie at these addresses.
struct ShownKey {
  uint32_t key = 0;
  uint64_t generation = 0;
  uint64_t base = 0;
  uint64_t length = 0;
  memory::Access access = 0;
  bool operator==(const ShownKey&) const = default;
};
std::optional<ShownKey> find_key(const Board& board, uint32_t rkey);

// Returns a generation number if the owner's QP `connection.from` still has this connection, else nullopt.
// The number changes whenever the owner changes the QP's line. A caller that fetches a payload from the
// owner's memory (rendezvous) compares the numbers before and after. If they are equal, the payload was still
// there.
std::optional<uint64_t> find_connected(const Board& board, const transport::Connection& connection);

struct FoundAccess {
  uint64_t at = 0;  // the address of the request's bytes in the owner's memory
  uint32_t rkey = 0;
  uint64_t generation = 0;  // of the key, as in ShownKey
  bool operator==(const FoundAccess&) const = default;
};

// Returns the place of the request's bytes if the owner would carry the request out. Makes the same checks as
// the owner's responder (adapter/transport/responder.cc). Returns nullopt if the owner might refuse; then the
// caller sends packets, and the owner answers them.
std::optional<FoundAccess> find_access(const Board& board, const AccessRequest& request);

// find_access() with a cache, for callers that use the same QPs and keys again and again. Keeps the last few
// permissions. A permission is valid until the QP's line or the key's line is written. One thread at a time.
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

  // A permission: the two lines allow the request, whatever its range, as long as both are unchanged.
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
