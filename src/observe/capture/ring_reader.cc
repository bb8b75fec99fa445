// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/ring_reader.h"

#include <algorithm>
#include <cstring>

#include "observe/capture/frame_builder.h"

namespace verbena::capture {

RingReader::RingReader(RingMemory& ring, uint32_t snap_bytes)
    : ring_(ring), snap_bytes_(std::min(snap_bytes, roce::kMaxPathMtu)) {}

const Record* RingReader::front() {
  if (has_front_) return &record_;
  while (!broken_) {
    const uint64_t there = ring_.written.load(std::memory_order_acquire) - taken_;
    if (there == 0) return nullptr;
    const auto at = static_cast<uint32_t>(taken_ % kRingBytes);
    const uint32_t to_end = kRingBytes - at;
    // Copy the head before validating it: the writer may change it meanwhile.
    RecordHead head{};
    std::memcpy(&head, ring_.data + at, std::min<size_t>(sizeof head, to_end));
    broken_ = there > kRingBytes || head.bytes > there || head.bytes > to_end || head.bytes == 0 ||
              head.bytes % kRecordUnit != 0;
    if (broken_) break;
    if (head.kind == RecordKind::kSkip) {
      // A skip occurs at most once per turn, where a record does not fit. A writer of skips alone could keep
      // this loop busy forever.
      broken_ = head.bytes != to_end || to_end >= kMaxRecord;
      if (broken_) break;
      taken_ += head.bytes;
      ring_.taken.store(taken_, std::memory_order_release);
      continue;
    }
    broken_ = !parse(head, at);
    if (broken_) break;
    next_ = taken_ + head.bytes;
    has_front_ = true;
    return &record_;
  }
  return nullptr;
}

void RingReader::pop() {
  has_front_ = false;
  taken_ = next_;
  ring_.taken.store(taken_, std::memory_order_release);
}

bool RingReader::parse(const RecordHead& head, uint32_t at) {
  if (head.kind != RecordKind::kPacket || head.bytes > kMaxRecord || head.bytes < sizeof head) return false;
  const uint32_t body_bytes = head.bytes - static_cast<uint32_t>(sizeof head);
  if (head.header_bytes > roce::kMaxHeaderBytes || head.payload_bytes > kMaxRecordPayload) return false;
  if (head.kept_bytes > head.payload_bytes || head.header_bytes + head.kept_bytes > body_bytes) return false;
  const uint32_t mtu = path_mtu_of(head.payload_bytes, head.count);
  if (mtu == 0) return false;
  const uint32_t kept = kept_bytes_of(head.payload_bytes, head.count, mtu, snap_bytes_);
  if (head.kept_bytes != 0 && head.kept_bytes != kept) return false;
  std::memcpy(copy_.data(), ring_.data + at + sizeof head, body_bytes);
  const ConstBytes body(copy_.data(), body_bytes);
  const roce::Headers& headers = record_.headers;
  if (roce::parse_headers(body.first(head.header_bytes), record_.headers)) return false;
  if (head.payload_bytes > 0 && !headers.info().carries_payload) return false;
  if (head.count > 1 && !can_be_joined(headers.opcode)) return false;

  record_.path.source.bytes = head.source_address;
  record_.path.destination.bytes = head.destination_address;
  if (record_.path.source.is_ipv4() != record_.path.destination.is_ipv4()) return false;
  record_.path.flow_label = head.flow_label & 0xfffff;
  record_.path.traffic_class = head.traffic_class;
  record_.path.hop_limit = head.hop_limit;
  record_.time = TimePoint(Duration(head.time));
  record_.payload = body.subspan(head.header_bytes, head.kept_bytes);
  record_.payload_bytes = head.payload_bytes;
  record_.count = head.count;
  record_.path_mtu = mtu;
  record_.snap_bytes = head.kept_bytes == 0 ? 0 : snap_bytes_;
  record_.source = roce::Qpn(head.source);
  record_.by_initiator = (head.flags & (kByInitiator | kPeersAnswer)) != 0;
  record_.peers_answer = (head.flags & kPeersAnswer) != 0;
  return true;
}

}  // namespace verbena::capture
