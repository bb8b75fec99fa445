// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/stream_protocol.h"

#include <cstring>

namespace verbena::rsockets {
namespace {

constexpr uint8_t kBigEndianFlag = 1;
constexpr uint8_t kIomapFlag = 2;

// Offsets in the 40 bytes. All numbers are in network byte order.
constexpr size_t kVersionAt = 0, kFlagsAt = 1, kCreditsAt = 2, kIomapAt = 7, kTableAt = 8, kBufferAt = 24;

}  // namespace

std::array<std::byte, ConnectData::kBytes> ConnectData::encode() const {
  std::array<std::byte, kBytes> bytes{};
  bytes[kVersionAt] = std::byte{kVersion};
  bytes[kFlagsAt] = std::byte(kIomapFlag | (order == ByteOrder::kBig ? kBigEndianFlag : 0));
  store_be(&bytes[kCreditsAt], credits);
  bytes[kIomapAt] = std::byte{scale_iomap_entries(iomap_entries)};
  std::memcpy(&bytes[kTableAt], table.encode(ByteOrder::kBig).data(), BufferAddress::kBytes);
  std::memcpy(&bytes[kBufferAt], buffer.encode(ByteOrder::kBig).data(), BufferAddress::kBytes);
  return bytes;
}

Result<ConnectData> ConnectData::decode(ConstBytes from) {
  if (from.size() < kBytes) return fail(EPROTO);
  if (from[kVersionAt] != std::byte{kVersion}) return fail(EOPNOTSUPP);
  const auto flags = std::to_integer<uint8_t>(from[kFlagsAt]);
  ConnectData data;
  data.credits = load_be<uint16_t>(&from[kCreditsAt]);
  data.order = (flags & kBigEndianFlag) ? ByteOrder::kBig : ByteOrder::kLittle;
  if (flags & kIomapFlag)
    data.iomap_entries = unscale_iomap_entries(std::to_integer<uint8_t>(from[kIomapAt]));
  data.table = BufferAddress::decode(&from[kTableAt], ByteOrder::kBig);
  data.buffer = BufferAddress::decode(&from[kBufferAt], ByteOrder::kBig);
  // We grant up to two buffers before the first is known to be full, so they need different entries.
  if (data.table.length < kTableEntries) return fail(EPROTO);
  return data;
}

}  // namespace verbena::rsockets
