// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/board.h"

#include <algorithm>
#include <span>

#include <infiniband/verbs.h>

namespace verbena::shm {
namespace {

using memory::Access;
using memory::Opening;
using Words = BoardLine::Words;

constexpr Access kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kTakesReads = 1u << 31;  // beside a QP's rights

// Identities of keys are random (adapter/memory/key_table.h), indices of QPs follow each other: their low
// bits do.
uint32_t home_of_key(uint32_t key) {
  return key >> 8;
}

constexpr uint64_t pair(uint32_t high, uint32_t low) {
  return uint64_t{high} << 32 | low;
}
constexpr uint32_t high(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}
constexpr uint32_t low(uint64_t word) {
  return static_cast<uint32_t>(word);
}

Words encode(const Opening& opening) {
  return {opening.key,    reinterpret_cast<uintptr_t>(opening.base), opening.iova,
          opening.length, pair(opening.access, opening.pd),          pair(opening.qpn_mask, opening.qpn)};
}

Opening decode_key(const Words& words) {
  Opening opening;
  opening.key = low(words[0]);
  opening.base = reinterpret_cast<std::byte*>(words[1]);
  opening.iova = words[2];
  opening.length = words[3];
  opening.access = high(words[4]);
  opening.pd = low(words[4]);
  opening.qpn_mask = high(words[5]);
  opening.qpn = low(words[5]);
  return opening;
}

Words encode(const BoardQp& qp) {
  return {qp.qpn, pair((qp.access & kRemote) | (qp.takes_reads ? kTakesReads : 0), qp.pd),
          pair(qp.destination, qp.receive_psn), qp.send_psn};
}

ShownKey shown(const Opening& opening, uint64_t generation) {
  return {.key = opening.key,
          .generation = generation,
          .base = reinterpret_cast<uintptr_t>(opening.base),
          .length = opening.length,
          .access = opening.access};
}

BoardQp decode_qp(const Words& words) {
  return {.qpn = low(words[0]),
          .pd = low(words[1]),
          .access = high(words[1]) & kRemote,
          .destination = high(words[2]),
          .receive_psn = low(words[2]),
          .send_psn = low(words[3]),
          .takes_reads = (high(words[1]) & kTakesReads) != 0};
}

// Calls visit(place) for each place that a name with this home may have, until it answers true.
template <class Visit>
void probe(uint32_t home, size_t lines, Visit visit) {
  for (uint32_t i = 0; i < kBoardProbes; ++i) {
    if (visit((home + i) & (lines - 1))) return;
  }
}

void put(std::span<BoardLine> lines, std::span<uint32_t> names, uint32_t home, const Words& words) {
  std::optional<size_t> to;
  probe(home, lines.size(), [&](size_t place) {
    if (names[place] == low(words[0])) to = place;
    if (names[place] == 0 && !to) to = place;
    return names[place] == low(words[0]);
  });
  if (!to) return;
  names[*to] = low(words[0]);
  lines[*to].write(words);
}

void take_off(std::span<BoardLine> lines, std::span<uint32_t> names, uint32_t home, uint32_t name) {
  probe(home, lines.size(), [&](size_t place) {
    if (names[place] != name) return false;
    lines[place].write({});
    names[place] = 0;
    return true;
  });
}

// A line that was found, and what it said.
struct Found {
  const BoardLine* line = nullptr;
  uint32_t sequence = 0;
  Words words{};
};

Found find(std::span<const BoardLine> lines, uint32_t home, uint32_t name) {
  Found found;
  probe(home, lines.size(), [&](size_t place) {
    const bool is_it = lines[place].read(found.words, found.sequence) && found.words[0] == name;
    if (is_it) found.line = &lines[place];
    return is_it;
  });
  return found;
}

uint64_t generation_of(std::span<const BoardLine> lines, const Found& found) {
  return pair(static_cast<uint32_t>(found.line - lines.data()), found.sequence);
}

std::optional<AccessFinder::Allowed> find_allowed(const Board& board, const AccessRequest& request) {
  if (request.qpn == 0 || request.rkey == 0) return std::nullopt;
  const Found by_qpn = find(board.qps, request.qpn, request.qpn);
  if (by_qpn.line == nullptr) return std::nullopt;
  const BoardQp qp = decode_qp(by_qpn.words);
  if (qp.destination != request.from || qp.receive_psn != request.first_psn) return std::nullopt;
  if ((qp.access & request.wanted) == 0) return std::nullopt;
  if (request.wanted != IBV_ACCESS_REMOTE_WRITE && !qp.takes_reads) return std::nullopt;

  const Found by_key = find(board.keys, home_of_key(request.rkey), request.rkey);
  if (by_key.line == nullptr) return std::nullopt;
  const Opening opening = decode_key(by_key.words);
  if (!opening.allows_remote(request.wanted, qp.pd, qp.qpn)) return std::nullopt;
  return AccessFinder::Allowed{.qp_line = by_qpn.line,
                               .key_line = by_key.line,
                               .qp_sequence = by_qpn.sequence,
                               .key_sequence = by_key.sequence,
                               .request = request,
                               .opening = opening,
                               .generation = generation_of(board.keys, by_key)};
}

}  // namespace

void format(Board& board) {
  board.version.store(kBoardVersion, std::memory_order_relaxed);
  board.bytes.store(sizeof(Board), std::memory_order_relaxed);
  board.magic.store(kBoardMagic, std::memory_order_release);
}

bool is_formatted(const Board& board) {
  return board.magic.load(std::memory_order_acquire) == kBoardMagic &&
         board.version.load(std::memory_order_relaxed) == kBoardVersion &&
         board.bytes.load(std::memory_order_relaxed) == sizeof(Board);
}

void BoardWriter::publish(const Opening& opening) {
  if (opening.kind == memory::RegionKind::kNull || (opening.access & kRemote) == 0) return;
  if (opening.key == 0) return;
  put(board_.keys, keys_, home_of_key(opening.key), encode(opening));
}

void BoardWriter::withdraw_key(uint32_t key) {
  if (key != 0) take_off(board_.keys, keys_, home_of_key(key), key);
}

void BoardWriter::publish(const BoardQp& qp) {
  put(board_.qps, qps_, qp.qpn, encode(qp));
}

void BoardWriter::withdraw_qp(uint32_t qpn) {
  if (qpn != 0) take_off(board_.qps, qps_, qpn, qpn);
}

std::optional<ShownKey> find_key(const Board& board, uint32_t rkey) {
  if (rkey == 0) return std::nullopt;
  const Found found = find(board.keys, home_of_key(rkey), rkey);
  if (found.line == nullptr) return std::nullopt;
  return shown(decode_key(found.words), generation_of(board.keys, found));
}

std::optional<uint64_t> find_connected(const Board& board, const transport::Connection& connection) {
  const uint32_t qpn = connection.from.value();
  if (qpn == 0) return std::nullopt;
  const Found found = find(board.qps, qpn, qpn);
  if (found.line == nullptr) return std::nullopt;
  const BoardQp qp = decode_qp(found.words);
  if (qp.destination != connection.to.value() || qp.send_psn != connection.first_psn.value())
    return std::nullopt;
  return generation_of(board.qps, found);
}

std::optional<FoundAccess> find_access(const Board& board, const AccessRequest& request) {
  const auto allowed = find_allowed(board, request);
  return allowed ? allowed->within_range(request) : std::nullopt;
}

bool AccessFinder::look(const AccessRequest& request, std::optional<Allowed>& remembered) const {
  remembered = find_allowed(board_, request);
  return remembered.has_value();
}

}  // namespace verbena::shm
