// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::rsockets {

// The messages of the rsocket protocol: 32 bits that travel as immediate data of RDMA WRITEs, 3 bits of
// operation and 29 bits of value.
enum class Operation : uint32_t {
  kData = 0,    // value: bytes written into the granted buffer
  kDirect = 2,  // WRITE without immediate data into a mapped buffer; never in a message
  // value: sequence number of the first message that may not be sent. May come with a granted buffer.
  kCredits = 4,
  kIomap = 6,    // value: index of the mapped-buffer entry that was written
  kControl = 7,  // value: a Control
};

enum class Control : uint32_t {
  kDisconnect = 0,  // the sender neither sends nor receives data any more
  kKeepalive = 1,   // an empty WRITE without immediate data; never in a message
  kShutdown = 2,    // the sender sends no more data
};

inline constexpr uint32_t kMaxMessageValue = (1u << 29) - 1;

struct Message {
  Operation operation;
  uint32_t value;

  // REQUIRES: value <= kMaxMessageValue
  constexpr uint32_t encode() const { return static_cast<uint32_t>(operation) << 29 | value; }

  // Returns nullopt for reserved operations and for those that are never in a message.
  static constexpr std::optional<Message> decode(uint32_t word) {
    const auto operation = static_cast<Operation>(word >> 29);
    switch (operation) {
      case Operation::kData:
      case Operation::kCredits:
      case Operation::kIomap:
      case Operation::kControl:
        return Message{operation, word & kMaxMessageValue};
      default:
        return std::nullopt;
    }
  }

  static constexpr Message control(Control what) {
    return {Operation::kControl, static_cast<uint32_t>(what)};
  }

  friend constexpr bool operator==(Message, Message) = default;
};

// The byte order of a table in memory. A table that the peer writes has the byte order of the host in whose
// memory it lies, so that this host reads it without conversion. Each side announces its byte order in the
// connection data.
enum class ByteOrder : uint8_t { kLittle, kBig };
inline constexpr ByteOrder kOwnOrder =
    std::endian::native == std::endian::little ? ByteOrder::kLittle : ByteOrder::kBig;

template <class T>
T in_order(T value, ByteOrder order) {
  return order == kOwnOrder ? value : byteswap(value);
}

// A buffer that the peer may write to by RDMA WRITE.
struct BufferAddress {
  static constexpr size_t kBytes = 16;
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;  // in bytes; the length of a table is in entries

  std::array<std::byte, kBytes> encode(ByteOrder order) const {
    const uint64_t address_word = in_order(address, order);
    const uint32_t words[] = {in_order(key, order), in_order(length, order)};
    std::array<std::byte, kBytes> bytes;
    std::memcpy(bytes.data(), &address_word, 8);
    std::memcpy(bytes.data() + 8, words, 8);
    return bytes;
  }

  // REQUIRES: kBytes bytes at `from`
  static BufferAddress decode(const std::byte* from, ByteOrder order) {
    uint64_t address_word;
    uint32_t words[2];
    std::memcpy(&address_word, from, 8);
    std::memcpy(words, from + 8, 8);
    return {in_order(address_word, order), in_order(words[0], order), in_order(words[1], order)};
  }

  friend bool operator==(const BufferAddress&, const BufferAddress&) = default;
};

// The maximum size of a table of mapped buffers, in entries. The connection data encode the size in one byte.
// Sizes up to 128 are stored as is; larger sizes are stored in units of 256, rounded down, with the top bit
// set.
inline constexpr uint32_t kMaxIomapEntries = 127 * 256;

constexpr uint8_t scale_iomap_entries(uint32_t entries) {
  entries = std::min(entries, kMaxIomapEntries);
  return static_cast<uint8_t>(entries <= 128 ? entries : 128 | entries >> 8);
}

constexpr uint32_t unscale_iomap_entries(uint8_t scaled) {
  return scaled <= 128 ? scaled : (scaled & 127u) << 8;
}

// Returns `entries` rounded down to a table size that the encoding can represent.
constexpr uint32_t representable_iomap_entries(uint32_t entries) {
  return unscale_iomap_entries(scale_iomap_entries(entries));
}

// The number of entries in each side's table of granted buffers (GrantTable). The other side writes the
// table.
inline constexpr uint32_t kTableEntries = 2;

// The private data of a connection request and of its reply: introduces each side's buffers to the other.
struct ConnectData {
  static constexpr size_t kBytes = 40;
  static constexpr uint8_t kVersion = 1;

  uint16_t credits = 0;         // messages that the peer may send before it gets more credits
  uint32_t iomap_entries = 0;   // entries for mapped buffers, which follow `table` in memory
  ByteOrder order = kOwnOrder;  // the byte order of the side that sends these data
  BufferAddress table;          // the sender's table, in which the receiver announces granted buffers
  BufferAddress buffer;         // the first buffer that the sender grants

  std::array<std::byte, kBytes> encode() const {
    std::array<std::byte, kBytes> bytes{};
    bytes[kVersionAt] = std::byte{kVersion};
    bytes[kFlagsAt] = std::byte(kIomapFlag | (order == ByteOrder::kBig ? kBigEndianFlag : 0));
    store_be(&bytes[kCreditsAt], credits);
    bytes[kIomapAt] = std::byte{scale_iomap_entries(iomap_entries)};
    std::memcpy(&bytes[kTableAt], table.encode(ByteOrder::kBig).data(), BufferAddress::kBytes);
    std::memcpy(&bytes[kBufferAt], buffer.encode(ByteOrder::kBig).data(), BufferAddress::kBytes);
    return bytes;
  }

  // Parses connection data. Errors: EPROTO if the data are too short or the table has fewer than
  // kTableEntries entries; EOPNOTSUPP for another version.
  static Result<ConnectData> decode(ConstBytes from) {
    if (from.size() < kBytes) return fail(EPROTO);
    if (from[kVersionAt] != std::byte{kVersion}) return fail(EOPNOTSUPP);
    const auto flags = std::to_integer<uint8_t>(from[kFlagsAt]);
    ConnectData data;
    data.credits = load_be<uint16_t>(&from[kCreditsAt]);
    data.order = (flags & kBigEndianFlag) != 0 ? ByteOrder::kBig : ByteOrder::kLittle;
    if ((flags & kIomapFlag) != 0)
      data.iomap_entries = unscale_iomap_entries(std::to_integer<uint8_t>(from[kIomapAt]));
    data.table = BufferAddress::decode(&from[kTableAt], ByteOrder::kBig);
    data.buffer = BufferAddress::decode(&from[kBufferAt], ByteOrder::kBig);
    // We grant up to two buffers before the first is known to be full, so they need different entries.
    if (data.table.length < kTableEntries) return fail(EPROTO);
    return data;
  }

 private:
  static constexpr uint8_t kBigEndianFlag = 1;
  static constexpr uint8_t kIomapFlag = 2;
  // Offsets in the 40 bytes. All numbers are in network byte order.
  static constexpr size_t kVersionAt = 0, kFlagsAt = 1, kCreditsAt = 2, kIomapAt = 7, kTableAt = 8,
                          kBufferAt = 24;
};

// An entry in a table of mapped buffers. On the host that has the table, riowrite() addresses the bytes of
// `buffer`, on the other host, by the offsets `offset` ... `offset + buffer.length - 1`.
struct IomapEntry {
  static constexpr size_t kBytes = 24;
  uint64_t offset = 0;
  BufferAddress buffer;

  std::array<std::byte, kBytes> encode(ByteOrder order) const {
    std::array<std::byte, kBytes> bytes;
    const uint64_t word = in_order(offset, order);
    std::memcpy(bytes.data(), &word, 8);
    std::memcpy(bytes.data() + 8, buffer.encode(order).data(), BufferAddress::kBytes);
    return bytes;
  }
};

// The table in our memory in which the peer lists the buffers that its application has mapped with riomap().
// The peer may write at any time, so each lookup copies an entry before it checks and uses it.
class IomapTable {
 public:
  IomapTable(const std::byte* memory, uint32_t entries) : memory_(memory), entries_(entries) {}

  // Returns the part of a mapped buffer from `offset` to the buffer's end; nullopt if no mapped buffer
  // contains `offset`.
  std::optional<BufferAddress> find(uint64_t offset) const {
    for (uint32_t i = 0; i < entries_; ++i) {
      std::array<std::byte, IomapEntry::kBytes> copy;
      std::memcpy(copy.data(), memory_ + i * IomapEntry::kBytes, copy.size());
      uint64_t begin;
      std::memcpy(&begin, copy.data(), 8);
      const BufferAddress buffer = BufferAddress::decode(copy.data() + 8, kOwnOrder);
      const uint64_t skipped = offset - begin;
      if (offset < begin || skipped >= buffer.length) continue;
      return BufferAddress{buffer.address + skipped, buffer.key,
                           static_cast<uint32_t>(buffer.length - skipped)};
    }
    return std::nullopt;
  }

 private:
  const std::byte* memory_;
  const uint32_t entries_;
};

// The table in our memory in which the peer announces the buffers that it grants. For each grant, the peer
// writes the next entry, cyclically, by an RDMA WRITE with a kCredits message as immediate data.
//
// Call take() once for each kCredits message whose WRITE had exactly one entry's bytes, and not earlier. The
// bytes of a WRITE arrive in no defined order, but its immediate data are delivered after all of them (IBTA
// volume 1, section 9.5). A taken entry is copied and cleared at once, so later writes of the peer do not
// change it. Only for the thread that handles completions.
class GrantTable {
 public:
  static constexpr size_t kBytes = kTableEntries * BufferAddress::kBytes;

  // REQUIRES: kBytes bytes at `memory`. Starts at the second entry: the connection data granted the first
  // buffer.
  explicit GrantTable(std::byte* memory) : memory_(memory) {}

  // Takes the next granted buffer. Returns nullopt if the entry is empty (its length is 0): the peer has
  // announced an entry without writing it. REQUIRES: since the last call, a kCredits message has announced
  // another entry
  std::optional<BufferAddress> take() {
    std::byte* entry = memory_ + next_ * BufferAddress::kBytes;
    const BufferAddress granted = BufferAddress::decode(entry, kOwnOrder);
    if (granted.length == 0) return std::nullopt;
    std::memset(entry, 0, BufferAddress::kBytes);
    next_ = (next_ + 1) % kTableEntries;
    return granted;
  }

 private:
  std::byte* memory_;
  uint32_t next_ = 1;
};

}  // namespace verbena::rsockets
