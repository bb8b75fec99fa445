// SPDX-License-Identifier: Apache-2.0
// Another process on this host to which a channel is made. It sends arbitrary messages and descriptors over
// the socket, and then writes arbitrary values into the shared memory. Promises: the channel opens or is
// lost, a lost one stays lost, and each call ends. Memory that could be truncated is not mapped. The other
// process is in no multicast group without a request, and in at most as many as allowed. All received
// descriptors are closed.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/engine/support/handshake.h"
#include "adapter/memory/guarded.h"
#include "adapter/shm/local_line.h"
#include "adapter/shm/own_board.h"
#include "adapter/shm/peer_memory.h"
#include "base/bell.h"
#include "base/sealed_file.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena::engine {
namespace {

using fuzz::Choices;

// Returns a memfd of this size, sealed or not.
UniqueFd memory_of(size_t bytes, bool sealed) {
  UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  VERBENA_REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  if (sealed) VERBENA_REQUIRE(seal_size(file.get()));
  return file;
}

class Other {
 public:
  Other() {
    auto made = ChannelMapping::make();
    VERBENA_REQUIRE(made);
    channel_.emplace(std::move(made->first));
    files_[0] = std::move(made->second);
    files_[1] = memory_of(sizeof(shm::ChannelMemory), true);
    files_[2] = memory_of(sizeof(shm::ChannelMemory), false);
    files_[3] = memory_of(4096, true);
    files_[4] = UniqueFd(::dup(bell_.ringing_fd()));
    files_[5] = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    files_[6] = UniqueFd(::dup(board_->file()));
    auto half = make_half();
    VERBENA_REQUIRE(half);
    half_.emplace(std::move(half->first));
    files_[7] = std::move(half->second);
  }

  // Resets the channel's memory, so that an input starts with a new one.
  void clean() {
    std::memset(static_cast<void*>(&channel_->memory()), 0, sizeof(shm::ChannelMemory));
    shm::format(channel_->memory());
    std::memset(static_cast<void*>(&half_->lane()), 0, sizeof(shm::Lane));
  }
  OwnBoard& board() { return *board_; }
  const Bell& bell() { return bell_; }

  void say(int socket, Choices& choices) {
    std::array<std::byte, 48> message{};
    Said said;
    said.type = 1 + choices.below(8);
    said.takes_bells = choices.below(3);
    if (choices.below(16) == 0) said.magic = choices.number<uint32_t>();
    if (choices.below(16) == 0) said.version = choices.number<uint32_t>();
    std::memcpy(message.data(), &said, sizeof said);
    size_t bytes = sizeof said;
    if (said.type == kPresent) {
      Presentation presentation{};
      std::memcpy(&presentation, &said, sizeof said);
      presentation.cookie_address = choices.yes() ? reinterpret_cast<uintptr_t>(board_->cookie().bytes.data())
                                                  : choices.number<uint64_t>();
      std::memcpy(presentation.cookie, board_->cookie().bytes.data(), Cookie::kBytes);
      if (choices.below(4) == 0) presentation.cookie[0] ^= std::byte{1};
      if (choices.below(4) == 0) presentation.board = choices.below(8);
      std::memcpy(message.data(), &presentation, sizeof presentation);
      bytes = sizeof presentation;
    } else if (said.type >= kAskForGroup && said.type != kHalf) {
      message[sizeof said] = std::byte{choices.below(8) == 0 ? uint8_t{0} : uint8_t{0xff}};
      message[sizeof said + 15] = static_cast<std::byte>(choices.byte());
      bytes = 36;
    } else if (choices.yes()) {
      message[sizeof said] = std::byte{1};
      bytes = sizeof said + 4;  // a greeting
    }
    const uint8_t change = choices.byte();
    if (change < 8) bytes = choices.below(message.size());
    if (change >= 8 && change < 16) bytes = 1;
    if (change >= 16 && change < 24)
      message[choices.below(message.size())] = static_cast<std::byte>(choices.byte());
    std::optional<int> file;
    const bool asks =
        said.type == kOffer || said.type == kPresent || said.type == kBell || said.type == kHalf;
    const uint8_t which = choices.byte();
    if (asks || which >= 0xf0) {
      const size_t usual = said.type == kOffer ? 0 : said.type == kBell ? 4 : said.type == kHalf ? 7 : 6;
      file = files_[which < 0xc0 ? usual : which % files_.size()].get();
    }
    if (bytes == 0) return;
    const ConstBytes whole(message.data(), bytes);
    if (which == 0xef) {
      const int two[] = {files_[0].get(), files_[5].get()};
      (void)control::send_message(socket, whole, two);
    } else {
      (void)send_with_credentials(socket, whole, file);
    }
  }

  // Writes into the channel's memory, or its half, if it is the one that both processes have mapped.
  void scribble(Choices& choices) {
    shm::ChannelMemory& memory = channel_->memory();
    const uint32_t which = choices.below(3);
    shm::Lane& lane = which == 2 ? half_->lane() : memory.lanes[which];
    switch (choices.below(5)) {
      case 0:
        lane.consumed = choices.byte();
        break;
      case 1:
        lane.reader_sleeps = lane.writer_waits = choices.below(2);
        break;
      case 2:
        lane.in_access = lane.refuses_access = choices.byte();
        break;
      case 3: {
        auto* const bytes = reinterpret_cast<std::byte*>(&lane);
        bytes[choices.number<uint32_t>() % sizeof lane] = static_cast<std::byte>(choices.byte());
        break;
      }
      default: {
        shm::Entry& entry = lane.entries[written_ % shm::kEntries];
        entry.content.kind = shm::EntryKind{static_cast<uint8_t>(1 + choices.below(2))};
        entry.content.head_bytes = static_cast<uint8_t>(choices.below(shm::kMaxHead + 2));
        static_assert(shm::kMaxPayload + 1 < 0x8000);  // the largest value that fits
        entry.content.payload_bytes = choices.number<uint16_t>() % (shm::kMaxPayload + 2) & 0x7fff;
        const ConstBytes head = choices.bytes(choices.below(shm::kMaxHead));
        if (!head.empty()) std::memcpy(entry.content.body, head.data(), head.size());
        entry.sequence = ++written_;
      }
    }
  }
  void forget() { written_ = 0; }

 private:
  Bell bell_ = *Bell::make();
  std::unique_ptr<OwnBoard> board_ = OwnBoard::make();
  std::optional<ChannelMapping> channel_;
  std::optional<OwnHalf> half_;
  std::array<UniqueFd, 8> files_;
  uint32_t written_ = 0;
};

void use(LocalLine& line, Choices& choices) {
  if (!line.has_lanes()) return;
  switch (choices.below(4)) {
    case 0: {
      const auto got = line.reader().receive(
          64,
          [](const transport::IncomingPacket& packet) {
            VERBENA_REQUIRE(packet.packet.headers.info().exists());
          },
          [](const transport::PlainSend& message, const roce::Path&) { return message.payload.empty(); },
          [](roce::ParseError) {});
      VERBENA_REQUIRE(got.packets <= 64);
      return;
    }
    case 1: {
      static const std::byte bytes[1024]{};
      roce::Headers headers;
      headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
      const roce::Path path;
      const uint32_t count = choices.byte() * 4u;
      const ConstBytes piece(bytes, count);
      line.writer().send({path, headers, {&piece, 1}, count});
      return;
    }
    case 2:
      line.ring();
      return;
    default:
      line.writer().wait_for_room();
      line.reader().give_back();
      if (PeerMemory* const memory = line.peer_memory()) memory->is_mapped(choices.byte());
  }
}

void run(Choices& choices) {
  static Other other;
  static const OwnBoard* const never = nullptr;
  other.clean();
  other.forget();
  int ends[2];
  VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  UniqueFd theirs(ends[1]);
  const uint8_t how = choices.byte();
  OwnBoard* const board = (how & 1) != 0 ? &other.board() : const_cast<OwnBoard*>(never);
  const Bell* const bell = (how & 2) != 0 ? &other.bell() : nullptr;
  std::unique_ptr<LocalLine> line;
  if ((how & 0xc) == 0xc) {
    auto offered = LocalLine::offer(ForeignSocket(UniqueFd(ends[0])), board, bell);
    if (!offered) return;
    line = std::move(*offered);
  } else {
    line = LocalLine::await(ForeignSocket(UniqueFd(ends[0])), board, bell);
  }
  uint32_t asked = 0;
  while (!choices.empty()) {
    const bool was_lost = line->state() == LocalLine::State::kLost;
    const bool was_open = line->was_open();
    switch (choices.below(8)) {
      case 0:
        use(*line, choices);
        break;
      case 1:
        other.scribble(choices);
        break;
      case 2:
        if (choices.below(8) == 0) theirs.reset();
        line->read_socket();
        break;
      case 3: {
        GroupKey group{};
        group.group.bytes[0] = 0xff;
        group.group.bytes[15] = choices.byte();
        if (line->ask_for(group) == LocalLine::Asked::kJustNow) ++asked;
        if (choices.yes()) line->decline(group);
        break;
      }
      default:
        if (theirs) other.say(theirs.get(), choices);
        if (choices.below(4) != 0) line->read_socket();
    }
    VERBENA_REQUIRE(!was_lost || line->state() == LocalLine::State::kLost);
    VERBENA_REQUIRE(!was_open || line->was_open());
    VERBENA_REQUIRE(!line->is_open() || line->has_lanes());
    VERBENA_REQUIRE(line->wanted().size() <= LocalLine::kMaxGroups);
    for (const GroupKey& group : line->wanted()) VERBENA_REQUIRE(group.group.is_multicast());
    VERBENA_REQUIRE(board != nullptr || line->peer_memory() == nullptr || line->was_open());
  }
}

}  // namespace
}  // namespace verbena::engine

namespace {

bool has_input = false;

}  // namespace

extern "C" {
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument);
// Work of the thread that closes slow descriptors (base/foreign_socket.h) runs at once in the caller.
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  if (!has_input) return __real_pthread_create(thread, attributes, run, argument);
  run(argument);
  return 0;
}
int __wrap_pthread_setname_np(pthread_t, const char*) {
  return 0;
}
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool guarded = (verbena::memory::install_fault_guard(), true);
  verbena::fuzz::Choices choices(data, size);
  // The lowest free descriptor is the same before and after, so nothing stays open.
  const int before = ::dup(STDERR_FILENO);
  ::close(before);
  has_input = true;
  if (guarded) verbena::engine::run(choices);
  has_input = false;
  static bool is_first = true;  // opens what stays open
  const int after = ::dup(STDERR_FILENO);
  ::close(after);
  VERBENA_REQUIRE(after == before || std::exchange(is_first, false));
  return 0;
}
