// SPDX-License-Identifier: Apache-2.0
// A process on this host that has a channel to ours, and writes arbitrary values into the shared memory
// between any two accesses: into rings, and into the export table of its own memory. Promises: each call ends
// after a few accesses, and no access goes out of the ring. Delivered data are within bounds, and a private
// copy where the ring says so. A broken ring stays broken. An export table names no bytes beyond the end of
// the address space, and none for a requester other than the one it names.
#include <cstring>

#include <infiniband/verbs.h>

#include "adapter/memory/guarded.h"
#include "adapter/shm/board.h"
#include "adapter/shm/disturbed_word.h"
#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_support.h"
#include "adapter/shm/lane_writer.h"
#include "adapter/shm/local_packets.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena::shm {
namespace {

using fuzz::Choices;

// Small, so that an input wraps around the ring.
struct SmallFormat {
  using Word = DisturbedWord;
  static constexpr uint32_t kEntries = 8;
  static constexpr RingSizes kRingBytes{1024, 2048, 4096};
  static constexpr uint32_t kMaxPayload = 256;
  static constexpr uint32_t kMaxCopied = 128;
  static constexpr uint32_t kLeastAtStart = 64;
  static constexpr uint32_t kMaxUsedAgain = 512;
  static void full_fence() { DisturbedWord::disturb(); }
};
using SmallLane = BasicLane<SmallFormat>;

constexpr uint32_t kMaxAccesses = 5;  // of one call: has_room() and wait_for_room() are two

// Lets the other process change the ring.
void scribble(SmallLane& lane, Choices& choices, uint32_t near_index) {
  auto& entry = lane.entries[(near_index + choices.below(3)) % SmallFormat::kEntries];
  switch (choices.below(8)) {
    case 0: {  // a random byte
      auto* const bytes = reinterpret_cast<std::byte*>(&lane);
      bytes[choices.number<uint16_t>() % sizeof lane] = static_cast<std::byte>(choices.byte());
      return;
    }
    case 1:
      lane.consumed.value = near_index + choices.below(16) - 8;
      return;
    case 2:
      lane.consumed.value = choices.number<uint32_t>();
      return;
    case 3:
      lane.reader_sleeps.value = choices.byte();
      return;
    case 4:
      lane.writer_waits.value = choices.byte();
      return;
    case 5:
      entry.sequence.value = near_index + choices.below(8) - 3;
      return;
    case 6:
      entry.content.payload_bytes = choices.number<uint16_t>() & kPayloadBytesMask;
      entry.content.from_start = choices.yes();
      entry.content.taken = near_index + choices.below(16) - 8;
      entry.content.head_bytes = choices.byte();
      return;
    default:  // a whole entry, as a correct writer would write it
      // Or an entry of an unknown kind that is otherwise valid.
      entry.content.kind =
          EntryKind{choices.yes() ? choices.byte() : static_cast<uint8_t>(1 + choices.below(7))};
      if (choices.yes()) {
        entry.content.head_bytes = 0;
        entry.content.payload_bytes = 0;
        entry.sequence.value = near_index + 1;
        return;
      }
      entry.content.head_bytes = static_cast<uint8_t>(choices.below(kMaxHead + 1));
      entry.content.payload_bytes =
          (choices.number<uint16_t>() % (SmallFormat::kMaxPayload + 1)) & kPayloadBytesMask;
      entry.content.from_start = choices.yes();
      entry.sequence.value = near_index + 1;
  }
}

// Both ends of a ring, in this process.
class Victim {
 public:
  Victim(SmallLane& lane, uint32_t first)
      : lane_(lane), near_index_(first), writer_(lane, first), reader_(lane, first) {}

  uint32_t near_index() const { return near_index_; }
  bool is_broken() const { return writer_.is_broken() && reader_.is_broken(); }

  void call(Choices& choices) {
    DisturbedWord::accesses = 0;
    switch (choices.below(8)) {
      case 0:
      case 1:
        put(choices);
        break;
      case 2:
        writer_.must_ring();
        // As if this ring were also the opposite one of the channel.
        writer_.say_taken(reader_.read_so_far());
        writer_.hear_taken(choices.yes() ? reader_.taken_by_writer() : near_index_ + choices.byte() - 128);
        break;
      case 3: {
        const Room room{choices.below(256), choices.below(SmallFormat::kEntries)};
        writer_.has_room(room);
        writer_.wait_for_room(room);
        break;
      }
      case 4:
        reader_.take_back();
        break;
      case 5:
        reader_.sleep();
        break;
      case 6:
        reader_.wake();
        if (choices.yes()) writer_.use_ring(choices.yes() ? RingWidth::kWide : RingWidth::kWidest);
        if (choices.yes()) writer_.narrow();
        break;
      default:
        read();
    }
    VERBENA_REQUIRE(DisturbedWord::accesses <= kMaxAccesses);
  }

 private:
  void put(Choices& choices) {
    const uint32_t bytes = choices.below(SmallFormat::kMaxPayload);
    const ConstBytes piece(payload_, bytes);
    const bool was_broken = writer_.is_broken();
    const Put put = writer_.put(EntryKind::kPacket, ConstBytes(payload_, choices.below(kMaxHead + 1)),
                                {&piece, 1}, bytes);
    VERBENA_REQUIRE(put == Put::kFull || (put == Put::kDone && !was_broken));
  }

  void read() {
    BasicLaneReader<SmallFormat>::Read read{};
    const bool was_broken = reader_.is_broken();
    if (!reader_.next(read)) return;
    VERBENA_REQUIRE(!was_broken && !reader_.is_broken());
    ++near_index_;
    VERBENA_REQUIRE(is_known(read.kind));
    VERBENA_REQUIRE(read.head.size() <= kMaxHead && read.payload.size() <= SmallFormat::kMaxPayload);
    const ConstBytes own(reinterpret_cast<const std::byte*>(&reader_), sizeof reader_);
    const bool is_copied = read.payload.size() <= SmallFormat::kMaxCopied;
    VERBENA_REQUIRE(lies_in(read.head, own));
    VERBENA_REQUIRE(lies_in(read.payload, is_copied ? own : ConstBytes(lane_.payload)));
    std::memcpy(payload_, read.payload.data(), read.payload.size());  // so that the sanitizer sees the read
  }

  SmallLane& lane_;
  uint32_t near_index_;
  BasicLaneWriter<SmallFormat> writer_;
  BasicLaneReader<SmallFormat> reader_;
  std::byte payload_[SmallFormat::kMaxPayload] = {};
};

void check_lane(Choices& choices) {
  const Zeroed<SmallLane> lane;
  const uint32_t first = choices.yes() ? choices.number<uint32_t>() : 0;
  DisturbedWord::turn = nullptr;
  format_lane(*lane, first);
  Victim victim(*lane, first);
  const uint32_t rarity = 1 + choices.below(8);
  uint32_t accesses = 0;
  DisturbedWord::turn = [&] {
    if (++accesses % rarity == 0 && !choices.empty()) scribble(*lane, choices, victim.near_index());
  };
  while (!choices.empty() && !victim.is_broken()) victim.call(choices);
  DisturbedWord::turn = nullptr;
}

// Valid entries of a ring with arbitrary contents. The resulting packets obey the same rules as packets of a
// network.
void check_packets(Choices& choices) {
  static const Zeroed<Lane> lane;
  static LaneWriter writer(*lane);
  static engine::PacketReader reader(*lane);
  uint32_t put = 0;
  while (!choices.empty()) {
    static constexpr EntryKind kKinds[] = {EntryKind::kPacket, EntryKind::kMessages, EntryKind::kPath};
    const EntryKind kind = kKinds[choices.below(8) == 0 ? 2 : choices.below(2)];
    const ConstBytes head = choices.bytes(choices.below(kMaxHead + 1));
    static std::byte payload[kMaxPayload];
    const uint32_t bytes = choices.yes() ? choices.number<uint16_t>() % (kMaxPayload + 1) : 0;
    const ConstBytes piece(payload, bytes);
    if (writer.put(kind, head, {&piece, 1}, bytes) == Put::kDone) put += kind != EntryKind::kPath;
    if (choices.below(4) != 0 && !choices.empty()) continue;
    uint32_t taken = 0;
    uint32_t packets = 0;
    const auto take = [&](const transport::IncomingPacket& packet) {
      const roce::Headers& headers = packet.packet.headers;
      VERBENA_REQUIRE(headers.info().exists());
      VERBENA_REQUIRE(packet.packet.count >= 1 && packet.packet.payload.size() <= kMaxPayload);
      VERBENA_REQUIRE(packet.path.flow_label <= 0xfffff);
      const auto& messages = packet.messages;
      packets += std::max<uint32_t>(static_cast<uint32_t>(messages.size()), 1);
      if (messages.empty()) return;
      VERBENA_REQUIRE(headers.operation() == roce::Operation::kSendOnly && messages.size() <= 16);
      size_t in_messages = 0;
      for (const uint8_t length : messages) in_messages += length;
      VERBENA_REQUIRE(in_messages == packet.packet.payload.size());
    };
    const auto received = reader.receive(
        1000, [&](const transport::IncomingPacket& packet) { ++taken, take(packet); },
        [&](const transport::PlainSend& message, const roce::Path& path) {
          if (message.payload.size() % 2 != 0) return false;  // it comes again, as a packet
          VERBENA_REQUIRE(message.headers.opcode == transport::PlainSend::kOpcode);
          VERBENA_REQUIRE(message.payload.size() <= kMaxPayload && path.flow_label <= 0xfffff);
          ++taken, ++packets;
          return true;
        },
        [&](roce::ParseError) { ++taken, ++packets; });
    VERBENA_REQUIRE(received.packets == packets && taken == put);
    put = 0;
    reader.give_back();
  }
  VERBENA_REQUIRE(!writer.is_broken() && !reader.lane().is_broken());
}

// The other process's export table: arbitrary entries in the places that a lookup reads, and lookups.
void check_board(Choices& choices) {
  static const Zeroed<Board> board;
  static std::vector<BoardLine*> written;
  for (BoardLine* line : written) new (line) BoardLine();
  written.clear();
  AccessRequest request;
  request.qpn = choices.byte();
  request.from = choices.byte();
  request.first_psn = choices.byte();
  request.rkey = choices.number<uint16_t>();
  request.wanted = choices.yes() ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
  choices.fill(request.address);
  request.bytes = choices.yes() ? choices.byte() : choices.number<uint64_t>();
  AccessFinder finder(*board);
  while (!choices.empty()) {
    finder.find(request);  // remembers a result that the next write makes wrong
    BoardLine::Words line{};
    const bool is_key = choices.yes();
    for (uint64_t& word : line) {
      word = choices.yes() ? choices.number<uint64_t>() : choices.byte();
    }
    // The places that lookups of these keys and QPNs read first.
    BoardLine& place = is_key ? board->keys[((request.rkey >> 8) + choices.below(kBoardProbes)) % kBoardKeys]
                              : board->qps[(request.qpn + choices.below(kBoardProbes)) % kBoardQps];
    place.write(line);
    written.push_back(&place);
  }
  const auto found = find_access(*board, request);
  VERBENA_REQUIRE(finder.find(request) == found);
  if (found) {
    VERBENA_REQUIRE(request.qpn != 0 && request.rkey != 0 && request.bytes != 0);
    VERBENA_REQUIRE(found->at <= UINTPTR_MAX - request.bytes);
    VERBENA_REQUIRE(found->rkey == request.rkey);
  }
  const auto key = find_key(*board, request.rkey);
  VERBENA_REQUIRE(!key || key->key == request.rkey);
  VERBENA_REQUIRE(!found ||
                  (key && key->generation == found->generation && (key->access & request.wanted) != 0));
}

}  // namespace
}  // namespace verbena::shm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::shm;
  static const bool guarded = (verbena::memory::install_fault_guard(), true);
  verbena::fuzz::Choices choices(data, size);
  switch (guarded ? choices.below(4) : 0) {
    case 0:
      check_packets(choices);
      break;
    case 1:
      check_board(choices);
      break;
    default:
      check_lane(choices);
  }
  return 0;
}
