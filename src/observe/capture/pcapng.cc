// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/pcapng.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace verbena::capture {
namespace {

constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint16_t kEthernet = 1;  // LINKTYPE_ETHERNET
constexpr uint8_t kNanoseconds = 9;
constexpr uint32_t kUnicast = 1 << 2;  // epb_flags: reception type

// Block types and options of the draft's sections 4.1 to 4.6.
enum BlockType : uint32_t {
  kInterfaceBlock = 1,
  kStatisticsBlock = 5,
  kPacketBlock = 6,
  kSectionBlock = 0x0a0d0d0a,
};
enum Option : uint16_t {
  kEnd = 0,
  kComment = 1,
  kPacketFlags = 2,
  kInterfaceName = 2,
  kInterfaceDescription = 3,
  kTimeResolution = 9,
  kApplication = 4,
  kStartTime = 2,
  kEndTime = 3,
  kReceived = 4,
  kDropped = 5,
};

constexpr size_t kMaxOptionBytes = std::numeric_limits<uint16_t>::max();

}  // namespace

// One block: its length is at both ends, and all parts begin at multiples of four bytes.
class PcapngWriter::Block {
 public:
  Block(std::vector<std::byte>& buffer, BlockType type) : buffer_(buffer), begin_(buffer.size()) {
    add<uint32_t>(type);
    add<uint32_t>(0);
  }
  ~Block() {
    const auto bytes = static_cast<uint32_t>(buffer_.size() - begin_ + sizeof(uint32_t));
    std::memcpy(&buffer_[begin_ + sizeof(uint32_t)], &bytes, sizeof bytes);
    add(bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <class T>
  void add(std::type_identity_t<T> value) {
    add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void add(uint32_t value) { add<uint32_t>(value); }
  // A 64-bit time is two words, the high one first.
  void add_time(WallTime time) {
    const auto nanoseconds = static_cast<uint64_t>(time.count());
    add<uint32_t>(static_cast<uint32_t>(nanoseconds >> 32));
    add<uint32_t>(static_cast<uint32_t>(nanoseconds));
  }
  void add_padded(ConstBytes bytes) {
    add_bytes(bytes);
    buffer_.resize(buffer_.size() + (-bytes.size() & 3));
  }
  void option(Option code, ConstBytes value) {
    value = value.first(std::min(value.size(), kMaxOptionBytes));
    add<uint16_t>(code);
    add<uint16_t>(static_cast<uint16_t>(value.size()));
    add_padded(value);
  }
  void option(Option code, std::string_view text) { option(code, std::as_bytes(std::span(text))); }
  template <class T>
  void number(Option code, std::type_identity_t<T> value) {
    option(code, std::as_bytes(std::span(&value, 1)));
  }
  void time(Option code, WallTime time) {
    add<uint16_t>(code);
    add<uint16_t>(sizeof(uint64_t));
    add_time(time);
  }
  void end_options() { option(kEnd, ConstBytes()); }

 private:
  void add_bytes(ConstBytes bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }

  std::vector<std::byte>& buffer_;
  const size_t begin_;
};

void PcapngWriter::section(std::string_view application) {
  Block block(buffer_, kSectionBlock);
  block.add<uint32_t>(kByteOrderMagic);
  block.add<uint16_t>(1);  // version 1.0
  block.add<uint16_t>(0);
  block.add<int64_t>(-1);  // section length: unspecified, until the end of the file
  block.option(kApplication, application);
  block.end_options();
}

void PcapngWriter::interface(std::string_view name, std::string_view description, uint32_t snap_bytes) {
  Block block(buffer_, kInterfaceBlock);
  block.add<uint16_t>(kEthernet);
  block.add<uint16_t>(0);
  block.add<uint32_t>(snap_bytes);
  block.option(kInterfaceName, name);
  block.option(kInterfaceDescription, description);
  block.number<uint8_t>(kTimeResolution, kNanoseconds);
  block.end_options();
}

void PcapngWriter::packet(const Packet& packet) {
  Block block(buffer_, kPacketBlock);
  block.add<uint32_t>(packet.interface);
  block.add_time(packet.time);
  block.add<uint32_t>(static_cast<uint32_t>(packet.frame.size()));
  block.add<uint32_t>(packet.wire_bytes);
  block.add_padded(packet.frame);
  if (!packet.comment.empty()) block.option(kComment, packet.comment);
  block.number<uint32_t>(kPacketFlags, static_cast<uint32_t>(packet.direction) | kUnicast);
  block.end_options();
}

void PcapngWriter::statistics(uint32_t interface, const Statistics& statistics) {
  Block block(buffer_, kStatisticsBlock);
  block.add<uint32_t>(interface);
  block.add_time(statistics.ended);
  block.time(kStartTime, statistics.began);
  block.time(kEndTime, statistics.ended);
  block.number<uint64_t>(kReceived, statistics.received);
  block.number<uint64_t>(kDropped, statistics.dropped);
  block.end_options();
}

}  // namespace verbena::capture
