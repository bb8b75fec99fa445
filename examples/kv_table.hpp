// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

// The table of kv.cc: the server changes it, and clients READ its entries at any time.
namespace example {

inline constexpr std::size_t kEntries = 1024;
inline constexpr std::size_t kProbes = 8;  // a key is in one of this many entries, from its hash on

inline std::uint64_t hash(std::string_view bytes) {  // FNV-1a
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char each : bytes) sum = (sum ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return sum;
}

// A string of at most N bytes. May come from the peer, so its size is checked.
template <std::size_t N>
struct text {
  std::uint32_t size = 0;
  std::array<char, N> bytes{};

  text() = default;
  explicit text(std::string_view from) : size(static_cast<std::uint32_t>(from.size())) {
    if (from.size() > N) throw std::system_error(EMSGSIZE, std::generic_category(), std::string(from));
    std::ranges::copy(from, bytes.begin());
  }
  std::string_view view() const { return {bytes.data(), std::min<std::size_t>(size, N)}; }
};
// A READ may see half of a change: its bytes are fetched in any order (IBTA 9.5), so not even a version at
// both ends of an entry tells. A checksum of all bytes does.
struct entry {
  text<60> key;  // empty: nothing has been put here
  text<180> value;
  std::uint64_t checksum = 0;

  std::uint64_t sum() const { return hash({reinterpret_cast<const char*>(this), offsetof(entry, checksum)}); }
  bool is_whole() const { return key.size == 0 || checksum == sum(); }
};
using table = std::array<entry, kEntries>;
static_assert(std::is_trivially_copyable_v<table> && std::has_unique_object_representations_v<entry>);

inline std::size_t place_of(std::string_view key, std::size_t probe) {
  return (hash(key) + probe) % kEntries;
}

// For the server: puts a key and its value into the table. Returns an errno, or 0.
inline int put(table& all, const entry& wanted) {
  if (wanted.key.view().empty()) return EINVAL;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    entry& one = all[place_of(wanted.key.view(), probe)];
    if (one.key.size != 0 && one.key.view() != wanted.key.view()) continue;
    entry changed = wanted;
    changed.checksum = changed.sum();
    one = changed;
    return 0;
  }
  return ENOSPC;
}

}  // namespace example
