// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include <endian.h>

// The messages of an RPC connection consist of records, one after the other. So all calls that are made in
// one turn of the loop travel in one message.
namespace verbena::rpc {

// The name of a method as a template argument: call<"get">().
template <std::size_t N>
struct method_name {
  constexpr method_name(const char (&text)[N]) { std::copy_n(text, N, characters); }
  constexpr std::string_view view() const { return {characters, N - 1}; }
  char characters[N]{};
};

namespace detail {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the number of a method: the FNV-1a hash of its name, in 64 bits. A service refuses a second method
// whose name has the same number.
constexpr std::uint64_t number_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char each : name) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return hash;
}

enum class kind : std::uint8_t {
  call = 1,         // payload: the arguments
  large_call = 2,   // payload: remote_slice of the arguments
  cancel = 3,       // the client does not want the reply any more; answered like a call
  fetched = 4,      // the client has read a large reply
  reply = 5,        // payload: the result
  large_reply = 6,  // payload: remote_slice of the result, which the client fetches
  failure = 7,      // `code`: errno; payload: a sentence
  goodbye = 8,      // the server takes no further calls on this connection
  window = 9,       // `call`: how many calls may be under way; the server's first record
};

struct record {
  kind what{};
  std::uint16_t code = 0;
  std::uint64_t call = 0;    // chosen by the client
  std::uint64_t method = 0;  // of a call
  std::span<const std::byte> payload{};
};

// The most bytes of arguments and results, whatever the options say: neither RDMA READs nor protobuf's
// messages are longer.
inline constexpr std::size_t kMaxData = (std::size_t{1} << 31) - 1;

// The bytes of the header before each payload. Its little-endian fields, with their bytes: size of the
// payload (4), kind (1), 0 (1), code (2), call (8), method (8).
inline constexpr std::size_t kRecordHeader = 24;

inline std::size_t size_of(const record& one) {
  return kRecordHeader + one.payload.size();
}
// Writes a record to `at`. REQUIRES: there is room for size_of(one)
inline void put(const record& one, std::byte* at) {
  const std::uint32_t size = htole32(static_cast<std::uint32_t>(one.payload.size()));
  const std::uint16_t code = htole16(one.code);
  const std::uint64_t numbers[2] = {htole64(one.call), htole64(one.method)};
  std::memcpy(at, &size, sizeof size);
  at[4] = static_cast<std::byte>(one.what);
  at[5] = std::byte{0};
  std::memcpy(at + 6, &code, sizeof code);
  std::memcpy(at + 8, numbers, sizeof numbers);
  if (!one.payload.empty()) std::memcpy(at + kRecordHeader, one.payload.data(), one.payload.size());
}
// Takes the first record off the rest of a message. Returns nothing if the message is malformed. The payload
// refers to the message.
inline std::optional<record> take(std::span<const std::byte>& rest) {
  if (rest.size() < kRecordHeader) return std::nullopt;
  std::uint32_t size = 0;
  std::uint16_t code = 0;
  std::uint64_t numbers[2];
  std::memcpy(&size, rest.data(), sizeof size);
  std::memcpy(&code, rest.data() + 6, sizeof code);
  std::memcpy(numbers, rest.data() + 8, sizeof numbers);
  size = le32toh(size);
  if (rest.size() - kRecordHeader < size) return std::nullopt;
  const record one{static_cast<kind>(rest[4]), le16toh(code), le64toh(numbers[0]), le64toh(numbers[1]),
                   rest.subspan(kRecordHeader, size)};
  rest = rest.subspan(kRecordHeader + size);
  return one;
}

}  // namespace detail
}  // namespace verbena::rpc
