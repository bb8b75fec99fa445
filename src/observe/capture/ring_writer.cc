// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/ring_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "adapter/memory/guarded.h"

namespace verbena::capture {
namespace {

constexpr uint32_t rounded(uint32_t bytes) {
  return (bytes + kRecordUnit - 1) / kRecordUnit * kRecordUnit;
}

// Copies bytes [offset, offset + bytes) of the concatenated pieces. False on a fault.
bool copy_range(std::span<const ConstBytes> pieces, uint32_t offset, uint32_t bytes, std::byte* to) {
  for (const ConstBytes piece : pieces) {
    if (bytes == 0) break;
    if (offset >= piece.size()) {
      offset -= static_cast<uint32_t>(piece.size());
      continue;
    }
    const size_t part = std::min<size_t>(bytes, piece.size() - offset);
    if (!memory::copy_guarded(to, piece.subspan(offset, part))) return false;
    to += part;
    bytes -= static_cast<uint32_t>(part);
    offset = 0;
  }
  return bytes == 0;
}

}  // namespace

RingWriter::RingWriter(RingMemory& ring)
    : ring_(ring), snap_bytes_(std::min(ring.snap_bytes, roce::kMaxPathMtu)) {}

// The reader is not trusted: an impossible counter is treated as a full ring.
bool RingWriter::has_room(uint64_t bytes) {
  const auto fits = [&] {
    return written_ - taken_ <= kRingBytes && kRingBytes - (written_ - taken_) >= bytes;
  };
  if (fits()) return true;
  taken_ = ring_.taken.load(std::memory_order_acquire);
  return fits();
}

bool RingWriter::write_payload(const SentPacket& packet, uint32_t mtu, std::byte* to) const {
  if (snap_bytes_ >= mtu || packet.count == 1) {
    const uint32_t kept = kept_bytes_of(packet.payload_bytes, packet.count, mtu, snap_bytes_);
    return copy_range(packet.payload, 0, kept, to);
  }
  for (uint32_t offset = 0; offset < packet.payload_bytes; offset += mtu) {
    const uint32_t kept = std::min({snap_bytes_, mtu, packet.payload_bytes - offset});
    if (!copy_range(packet.payload, offset, kept, to)) return false;
    to += kept;
  }
  return true;
}

void RingWriter::put(const SentPacket& packet) {
  const auto leave_out = [&] {
    left_out_ += packet.count;
    ring_.left_out.store(left_out_, std::memory_order_relaxed);
  };
  const uint32_t mtu = path_mtu_of(packet.payload_bytes, packet.count);
  if (mtu == 0) return leave_out();
  const uint32_t header_bytes = roce::header_bytes(packet.headers.opcode);
  uint32_t kept = kept_bytes_of(packet.payload_bytes, packet.count, mtu, snap_bytes_);
  uint32_t bytes = rounded(static_cast<uint32_t>(sizeof(RecordHead)) + header_bytes + kept);
  const auto at = static_cast<uint32_t>(written_ % kRingBytes);
  const uint32_t skipped = kRingBytes - at < bytes ? kRingBytes - at : 0;
  if (!has_room(skipped + bytes)) return leave_out();

  std::byte* const record = ring_.data + (at + skipped) % kRingBytes;
  std::array<std::byte, roce::kMaxHeaderBytes> headers;
  roce::encode(packet.headers, headers);
  std::memcpy(record + sizeof(RecordHead), headers.data(), header_bytes);
  if (!write_payload(packet, mtu, record + sizeof(RecordHead) + header_bytes)) {
    kept = 0;
    bytes = rounded(static_cast<uint32_t>(sizeof(RecordHead)) + header_bytes);
  }
  const RecordHead head{.bytes = bytes,
                        .kind = RecordKind::kPacket,
                        .flags = packet.flags,
                        .header_bytes = static_cast<uint8_t>(header_bytes),
                        .count = static_cast<uint8_t>(packet.count),
                        .time = packet.time.time_since_epoch().count(),
                        .payload_bytes = packet.payload_bytes,
                        .kept_bytes = kept,
                        .source = packet.source.value(),
                        .flow_label = packet.path.flow_label,
                        .source_address = packet.path.source.bytes,
                        .destination_address = packet.path.destination.bytes,
                        .traffic_class = packet.path.traffic_class,
                        .hop_limit = packet.path.hop_limit,
                        .reserved = {}};
  std::memcpy(record, &head, sizeof head);
  if (skipped > 0) {
    RecordHead skip{};
    skip.bytes = skipped;
    skip.kind = RecordKind::kSkip;
    std::memcpy(ring_.data + at, &skip, kRecordUnit);
  }
  written_ += skipped + bytes;
  ring_.written.store(written_, std::memory_order_release);
}

}  // namespace verbena::capture
