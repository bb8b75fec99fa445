// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/takeover_state.h"

#include <algorithm>
#include <iterator>
#include <map>

#include <sys/socket.h>

#include "base/text.h"
#include "control/model/message_socket.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {
namespace {

using protocol::kProgramBytes;

constexpr uint32_t kTakeoverMagic = 0x746c7576;  // "vult"
constexpr uint32_t kLeased = 1;
constexpr uint32_t kHasSocket = 2;
constexpr uint32_t kHasPage = 4;
constexpr uint32_t kSocketIsOurs = 16;  // no process has had the socket
constexpr uint32_t kHasForwarderEnd = 32;
constexpr uint32_t kHasProcess = 64;
constexpr size_t kSlotsPerMessage = 60;  // at most four descriptors per slot: below SCM_MAX_FD
// Maximum in messages that an older agent wrote.
constexpr size_t kMaxSlotsPerMessage = 100;

struct VaultHeader {
  uint32_t magic;
  uint32_t slots;  // number of SlotEntry that follow; 0: the message has a link file; kBringsLedger: a ledger
};
static_assert(sizeof(VaultHeader) == 8);

// A message without slots and without a file. Agents that do not know the type ignore it because of its
// length.
struct OnlyUser {
  VaultHeader header;
  uint32_t uid;
};
static_assert(sizeof(OnlyUser) == 12);

struct SlotEntry {
  uint64_t start_time;
  uint32_t index;
  uint32_t flags;
  uint32_t uid;
  int32_t pid;
  char program[kProgramBytes];
};
static_assert(sizeof(SlotEntry) == 88);

constexpr size_t kMaxVaultMessage = sizeof(VaultHeader) + kMaxSlotsPerMessage * sizeof(SlotEntry);

SlotEntry entry_of(const SlotRecord& slot) {
  SlotEntry entry{};
  entry.start_time = slot.start_time;
  entry.index = slot.index;
  entry.flags = (slot.leased ? kLeased : 0) | (slot.socket >= 0 ? kHasSocket : 0) |
                (slot.page >= 0 ? kHasPage : 0) | (slot.socket_uid == kNobody ? kSocketIsOurs : 0) |
                (slot.forwarder_end >= 0 ? kHasForwarderEnd : 0) | (slot.process >= 0 ? kHasProcess : 0);
  entry.uid = slot.uid;
  entry.pid = slot.pid;
  store_text(entry.program, slot.program);
  return entry;
}

SlotRecord record_of(const SlotEntry& entry) {
  SlotRecord slot;
  slot.index = entry.index;
  slot.leased = (entry.flags & kLeased) != 0;
  slot.uid = entry.uid;
  slot.socket_uid = (entry.flags & kSocketIsOurs) != 0 ? kNobody : entry.uid;
  slot.pid = entry.pid;
  slot.start_time = entry.start_time;
  slot.program = load_text(entry.program);
  return slot;
}

// Reads the slots of a message. A later record of a slot replaces an earlier one. Descriptors come in this
// order: sockets and pages, forwarder ends, pidfds. An older agent that does not know the later groups leaves
// them out.
void read_slots(ConstBytes bytes, uint32_t count, std::vector<UniqueFd>& fds,
                std::map<uint32_t, SlotRecord>& slots) {
  size_t next_fd = 0;
  const auto take_fd = [&](bool has) { return has && next_fd < fds.size() ? fds[next_fd++].get() : -1; };
  const auto for_each_entry = [&](auto&& use) {
    for (uint32_t i = 0; i < count; ++i) {
      SlotEntry entry;
      std::memcpy(&entry, bytes.data() + i * sizeof entry, sizeof entry);
      use(entry);
    }
  };
  for_each_entry([&](const SlotEntry& entry) {
    SlotRecord slot = record_of(entry);
    slot.socket = take_fd((entry.flags & kHasSocket) != 0);
    slot.page = take_fd((entry.flags & kHasPage) != 0);
    if (slot.index < roce::Qpn::kSlots) slots[slot.index] = std::move(slot);
  });
  for_each_entry([&](const SlotEntry& entry) {
    const int end = take_fd((entry.flags & kHasForwarderEnd) != 0);
    if (entry.index < roce::Qpn::kSlots) slots[entry.index].forwarder_end = end;
  });
  for_each_entry([&](const SlotEntry& entry) {
    const int process = take_fd((entry.flags & kHasProcess) != 0);
    if (entry.index < roce::Qpn::kSlots) slots[entry.index].process = process;
  });
}

}  // namespace

Result<TakeoverState> TakeoverState::create() {
  auto ends = control::make_socket_pair();
  if (!ends) return fail(ends.error().code);
  TakeoverState takeover_state;
  takeover_state.in_ = std::move(ends->ours);
  takeover_state.out_ = std::move(ends->theirs);
  const int bytes = 1 << 20;  // the kernel caps it at net.core.wmem_max
  ::setsockopt(takeover_state.in_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return takeover_state;
}

Result<void> TakeoverState::put(std::span<const SlotRecord> slots) {
  std::byte message[kMaxVaultMessage];
  std::vector<int> fds;
  const VaultHeader header{kTakeoverMagic, static_cast<uint32_t>(slots.size())};
  std::memcpy(message, &header, sizeof header);
  size_t bytes = sizeof header;
  for (const SlotRecord& slot : slots) {
    const SlotEntry entry = entry_of(slot);
    std::memcpy(message + bytes, &entry, sizeof entry);
    bytes += sizeof entry;
    if (slot.socket >= 0) fds.push_back(slot.socket);
    if (slot.page >= 0) fds.push_back(slot.page);
  }
  for (const SlotRecord& slot : slots) {
    if (slot.forwarder_end >= 0) fds.push_back(slot.forwarder_end);
  }
  for (const SlotRecord& slot : slots) {
    if (slot.process >= 0) fds.push_back(slot.process);
  }
  return send(ConstBytes(message, bytes), fds);
}

Result<void> TakeoverState::send(ConstBytes message, std::span<const int> fds) {
  auto sent = control::send_message(in_.get(), message, fds);
  if (sent) ++messages_;
  return sent;
}

Result<void> TakeoverState::put_file(uint32_t what, int file) {
  const VaultHeader header{kTakeoverMagic, what};
  return send(protocol::bytes_of(header), {&file, 1});
}

Result<void> TakeoverState::put_all(std::span<const SlotRecord> slots, const Rest& rest) {
  if (rest.only) {
    if (auto sent = send(protocol::bytes_of(OnlyUser{{kTakeoverMagic, 0}, *rest.only})); !sent) return sent;
  }
  if (rest.link_file >= 0) {
    if (auto sent = put_links(rest.link_file); !sent) return sent;
  }
  if (rest.ledger >= 0) {
    if (auto sent = put_ledger(rest.ledger); !sent) return sent;
  }
  while (!slots.empty()) {
    const size_t count = std::min(slots.size(), kSlotsPerMessage);
    if (auto sent = put(slots.first(count)); !sent) return sent;
    slots = slots.subspan(count);
  }
  return {};
}

Result<void> TakeoverState::rewrite(std::span<const SlotRecord> slots, const Rest& rest) {
  const size_t old = std::exchange(messages_, 0);
  if (auto written = put_all(slots, rest); !written) {  // the old messages are still there
    messages_ += old;
    return written;
  }
  std::byte header[sizeof(VaultHeader)];
  for (size_t i = 0; i < old; ++i) {
    if (!control::receive_message(out_.get(), header, 0)) break;
  }
  return {};
}

TakeoverState::Contents TakeoverState::take(int client_end) {
  return read(client_end, control::receive_message);
}

// Each peek advances the peek offset to the next message, until SO_PEEK_OFF is turned off.
TakeoverState::Contents TakeoverState::look(int client_end) {
  const int from_the_first = 0;
  const int off = -1;
  if (::setsockopt(client_end, SOL_SOCKET, SO_PEEK_OFF, &from_the_first, sizeof from_the_first) != 0)
    return {};
  Contents contents = read(client_end, control::peek_message);
  ::setsockopt(client_end, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off);
  return contents;
}

// `receive`: control::receive_message or control::peek_message.
template <class Receive>
TakeoverState::Contents TakeoverState::read(int client_end, Receive receive) {
  Contents contents;
  std::map<uint32_t, SlotRecord> slots;
  // A takeover state has at most about seventy messages. The limit is for a forged socket, which may never be
  // empty.
  for (size_t i = 0; i < 4 * kLong; ++i) {
    std::byte message[kMaxVaultMessage];
    auto received = receive(client_end, Bytes(message), control::kMaxScmFds);
    if (!received || received->bytes == 0) break;
    VaultHeader header;
    if (received->bytes < sizeof header || received->truncated) continue;
    std::memcpy(&header, message, sizeof header);
    if (header.magic != kTakeoverMagic) continue;
    if (header.slots == kBringsLedger && received->bytes == sizeof header && !received->fds.empty()) {
      contents.ledger = std::move(received->fds.front());
    }
    if (header.slots > kMaxSlotsPerMessage) continue;
    if (header.slots == 0 && received->bytes == sizeof(OnlyUser)) {
      contents.only = protocol::read_as<OnlyUser>(ConstBytes(message, received->bytes)).uid;
    }
    if (received->bytes != sizeof header + header.slots * sizeof(SlotEntry)) continue;
    if (header.slots == 0) {
      if (!received->fds.empty()) contents.links = std::move(received->fds.front());
      continue;
    }
    read_slots(ConstBytes(message, received->bytes).subspan(sizeof header), header.slots, received->fds,
               slots);
    std::move(received->fds.begin(), received->fds.end(), std::back_inserter(contents.fds));
  }
  for (auto& [index, slot] : slots) contents.slots.push_back(std::move(slot));
  return contents;
}

}  // namespace verbena::agent
