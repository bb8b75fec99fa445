// SPDX-License-Identifier: Apache-2.0
// A captured process that writes arbitrary counters and records into the ring that `verbena capture` reads,
// also during the read. Promises: the reader terminates, stays within the ring, accepts no impossible record,
// and makes of each record frames that fit. A broken ring stays broken. Conversely, a reader that writes
// arbitrary counters only makes the process leave out packets.
#include <cstring>
#include <memory>

#include "adapter/memory/guarded.h"
#include "adapter/shm/lane_support.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "observe/capture/frame_builder.h"
#include "observe/capture/pcapng.h"
#include "observe/capture/ring_reader.h"
#include "observe/capture/ring_writer.h"

namespace verbena::capture {
namespace {

using fuzz::Choices;

constexpr uint32_t kUsed = 64 * 1024;  // bytes of the ring that an input uses
constexpr uint32_t kMaxRecords = kRingBytes / kRecordUnit;

class Ring {
 public:
  RingMemory& clean(uint32_t snap_bytes) {
    ring_->snap_bytes = snap_bytes;
    ring_->written = 0;
    ring_->left_out = 0;
    ring_->taken = 0;
    std::memset(ring_->data, 0, used_);
    used_ = 0;
    return *ring_;
  }
  void dirty(uint64_t up_to) { used_ = std::max<uint64_t>(used_, std::min<uint64_t>(up_to, kRingBytes)); }

 private:
  const shm::Zeroed<RingMemory> ring_;
  uint64_t used_ = 0;
};

// Returns the head of a possible record, unless the input says otherwise.
RecordHead head_from(Choices& choices, uint64_t there) {
  RecordHead head{};
  choices.fill(head);
  const uint8_t help = choices.byte();
  if ((help & 1) != 0) head.kind = RecordKind::kPacket;
  if ((help & 2) != 0) head.bytes = static_cast<uint32_t>(there);
  if ((help & 4) != 0) head.count = static_cast<uint8_t>(1 + head.count % 16);
  if ((help & 8) != 0) head.payload_bytes %= kMaxRecordPayload + 1;
  if ((help & 16) != 0) head.source_address = head.destination_address;
  if ((help & 32) != 0) {
    const uint32_t mtu = path_mtu_of(head.payload_bytes, head.count);
    if (mtu != 0) head.kept_bytes = kept_bytes_of(head.payload_bytes, head.count, mtu, choices.byte());
  }
  if ((help & 64) != 0) {
    head.payload_bytes %= 256;
    head.kept_bytes = head.payload_bytes;
    head.count = 1;
  }
  return head;
}

void check_record(const Record& record) {
  static FrameBuilder builder;
  static PcapngWriter file;
  VERBENA_REQUIRE(record.count >= 1 && record.payload_bytes <= kMaxRecordPayload);
  VERBENA_REQUIRE(record.payload.size() <= record.payload_bytes);
  VERBENA_REQUIRE(record.path.source.is_ipv4() == record.path.destination.is_ipv4());
  uint32_t all = 0;
  for (uint32_t i = 0; i < record.count; ++i) {
    const WirePacket packet = packet_at(record, i);
    all += packet.payload_bytes;
    const auto frame = builder.build({}, record.path, packet);
    VERBENA_REQUIRE(frame.bytes.size() <= frame.wire_bytes);
    file.packet({.frame = frame.bytes, .wire_bytes = frame.wire_bytes, .comment = {}});
    VERBENA_REQUIRE(file.pending().size() >= frame.bytes.size() && file.pending().size() % 4 == 0);
    file.clear();
  }
  VERBENA_REQUIRE(all == record.payload_bytes);
}

void check_reader(Choices& choices) {
  static Ring memory;
  const uint32_t snap_bytes = choices.yes() ? roce::kMaxPathMtu : choices.byte();
  RingMemory& ring = memory.clean(snap_bytes);
  static std::optional<RingReader> reader;
  reader.emplace(ring, snap_bytes);
  uint32_t at = 0;
  uint32_t records = 0;
  while (!choices.empty()) {
    const auto body = static_cast<uint32_t>(choices.below(64)) * kRecordUnit;
    const RecordHead head = head_from(choices, sizeof(RecordHead) + body);
    const ConstBytes content = choices.bytes(std::min(body, choices.below(64)));
    if (at + sizeof head + body > kUsed) break;
    std::memcpy(ring.data + at, &head, sizeof head);
    if (!content.empty()) std::memcpy(ring.data + at + sizeof head, content.data(), content.size());
    at += static_cast<uint32_t>(sizeof head) + body;
    memory.dirty(at);
    // Sometimes not the number of bytes written.
    ring.written = choices.below(16) == 0 ? choices.number<uint64_t>() : at;
    const bool was_broken = reader->is_broken();
    while (const Record* record = reader->front()) {
      VERBENA_REQUIRE(!was_broken && ++records <= kMaxRecords);
      check_record(*record);
      if (choices.below(8) == 0) ring.written = choices.number<uint64_t>();
      reader->pop();
    }
    VERBENA_REQUIRE(!was_broken || reader->is_broken());
    if (reader->is_broken()) return;
  }
}

void check_writer(Choices& choices) {
  static Ring memory;
  RingMemory& ring = memory.clean(roce::kMaxPathMtu);
  RingWriter writer(ring);
  uint64_t left_out = 0;
  static const std::byte bytes[1024]{};
  uint64_t put = 0;
  while (!choices.empty()) {
    const uint64_t claimed = choices.yes() ? choices.number<uint64_t>() : ring.written - choices.byte();
    if (choices.below(4) == 0) ring.taken = claimed;
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    const roce::Path path;
    const uint32_t count = choices.byte() * 4u;
    const ConstBytes piece(bytes, count);
    writer.put(
        {.time = {}, .path = path, .headers = headers, .payload = {&piece, 1}, .payload_bytes = count});
    ++put;
    const uint64_t now_left_out = ring.left_out;
    VERBENA_REQUIRE(now_left_out >= left_out && now_left_out <= put);
    left_out = now_left_out;
    memory.dirty(ring.written);
  }
  VERBENA_REQUIRE(ring.written <= put * (sizeof(RecordHead) + sizeof bytes + 128) + kRingBytes);
}

}  // namespace
}  // namespace verbena::capture

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::capture;
  static const bool guarded = (verbena::memory::install_fault_guard(), true);
  verbena::fuzz::Choices choices(data, size);
  if (guarded && choices.below(8) == 0) {
    check_writer(choices);
  } else {
    check_reader(choices);
  }
  return 0;
}
