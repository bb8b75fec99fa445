// SPDX-License-Identifier: Apache-2.0
// A process of the agent's user that gives a new agent an arbitrary takeover state, ledger and link table,
// and then claims parts of it. Promises: invalid contents are ignored. Slots, ports, connections and links
// that are taken over are valid, and no two are the same. Unclaimed ones are free again when their time is
// over. All received descriptors are closed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cm/ledger.h"
#include "agent/links/link_table.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/takeover/takeover_state.h"
#include "base/text.h"
#include "control/model/link.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {

// ---- replaces the sockets of UDP port 4791: any descriptor will do

void Wire::open() {}
Result<uint32_t> Wire::add() {
  return fail(EMFILE);
}
Result<void> Wire::adopt(std::vector<UniqueFd> sockets, std::set<uint32_t>) {
  if (sockets.empty()) return fail(EINVAL);
  for (const UniqueFd& socket : sockets) {
    if (!socket) return fail(EINVAL);
  }
  sockets_.clear();
  for (UniqueFd& each : sockets) sockets_.push_back(std::make_shared<const UniqueFd>(std::move(each)));
  return {};
}
void Wire::mute(uint32_t) {}
void Wire::hang_up(uint32_t) {}
void Wire::unmute(uint32_t) {}
Result<void> Wire::forward(uint32_t, uid_t) {
  return fail(EMFILE);
}
UniqueFd Wire::take_receiver(uint32_t) {
  return {};
}
Result<void> Wire::go_on_forwarding(uint32_t, uid_t, UniqueFd) {
  return {};
}

namespace {

using fuzz::Choices;

constexpr uid_t kOwn = 0;
constexpr TimePoint kStart{std::chrono::hours(1)};

// The writing end of a takeover state, and the messages that it sends.
class Giver {
 public:
  Giver() {
    VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_) == 0);
    for (UniqueFd& file : files_) file = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  }
  int client_end() const { return ends_[1]; }
  // Reads the remaining messages, which the next input would get otherwise.
  void drain() {
    std::byte byte;
    while (control::receive_message(ends_[1], {&byte, 1}, control::kMaxScmFds)) {
    }
  }

  // The layout that takeover_state.cc writes.
  struct Header {
    uint32_t magic = 0x746c7576;
    uint32_t slots = 0;
  };
  struct Entry {
    uint64_t start_time;
    uint32_t index;
    uint32_t flags;
    uint32_t uid;
    int32_t pid;
    char program[protocol::kProgramBytes];
  };

  void say(Choices& choices) {
    std::array<std::byte, 512> message{};
    Header header;
    header.slots = choices.below(4);
    if (choices.below(8) == 0) header.slots = choices.yes() ? 0x10000 : choices.number<uint32_t>();
    if (choices.below(32) == 0) header.magic = choices.number<uint32_t>();
    std::memcpy(message.data(), &header, sizeof header);
    size_t bytes = sizeof header;
    for (uint32_t i = 0; i < std::min(header.slots, 4u); ++i) {
      Entry entry{};
      entry.index = choices.below(8) == 0 ? choices.number<uint32_t>() : choices.below(6);
      entry.flags = choices.byte();
      entry.uid = choices.below(4) == 0 ? choices.number<uint32_t>() : 1000 + choices.below(3);
      entry.pid = static_cast<int32_t>(choices.number<int8_t>());
      entry.start_time = choices.below(3);
      const ConstBytes name = choices.bytes(choices.below(8));
      if (!name.empty()) std::memcpy(entry.program, name.data(), name.size());
      std::memcpy(message.data() + bytes, &entry, sizeof entry);
      bytes += sizeof entry;
    }
    if (header.slots == 0 && choices.yes()) bytes += sizeof(uint32_t);  // the --serve-only user
    if (choices.below(16) == 0) bytes = choices.number<uint16_t>() % message.size();
    std::array<int, 8> fds{};
    const uint32_t count = choices.below(9);
    for (uint32_t i = 0; i < count; ++i) fds[i] = files_[choices.below(3)].get();
    if (bytes == 0) return;
    [[maybe_unused]] const auto sent =
        control::send_message(ends_[0], {message.data(), bytes}, std::span(fds).first(count));
  }

 private:
  int ends_[2] = {-1, -1};
  std::array<UniqueFd, 3> files_;
};

void check_slots(Choices& choices) {
  static Giver giver;
  while (!choices.empty()) giver.say(choices);
  const int before = ::dup(giver.client_end());
  ::close(before);
  {
    TakeoverState::Contents contents = TakeoverState::take(giver.client_end());
    std::set<int> owned;
    for (const UniqueFd& fd : contents.fds) VERBENA_REQUIRE(!fd || owned.insert(fd.get()).second);
    std::set<uint32_t> indexes;
    for (const SlotRecord& slot : contents.slots) {
      VERBENA_REQUIRE(slot.index < roce::Qpn::kSlots && indexes.insert(slot.index).second);
      for (const int fd : {slot.socket, slot.page, slot.forwarder_end, slot.process}) {
        VERBENA_REQUIRE(fd < 0 || owned.contains(fd));
      }
      VERBENA_REQUIRE(slot.socket < 0 || slot.socket != slot.page);
    }
    Wire wire(4791);
    SlotTable slots(wire, kOwn);
    const bool adopted = slots.adopt(contents, kStart).has_value();
    for (const LeasedSlot& slot : slots.leased()) {
      VERBENA_REQUIRE(adopted && slot.index > 0 && slot.index < SlotTable::kEnd && slot.page >= 0);
      VERBENA_REQUIRE(slot.lessee.session == 0);
      // Only the owner can claim the slot.
      Lessee stranger = slot.lessee;
      stranger.session = 5;
      ++stranger.pid;
      VERBENA_REQUIRE(!slots.keep(slot.index, stranger));
      --stranger.pid;
      VERBENA_REQUIRE(slots.keep(slot.index, stranger));
      VERBENA_REQUIRE(!slots.keep(slot.index, stranger));
    }
    for (const LeasedSlot& slot : slots.leased_to(5)) {
      VERBENA_REQUIRE(slots.take_back(slot.index, 5, kStart).has_value());
    }
    VERBENA_REQUIRE(slots.leased().empty());
    // The slots can be leased again.
    Lessee next;
    next.session = 6;
    next.uid = kOwn;
    const auto leased = slots.lease(next, kStart + std::chrono::hours(1));
    VERBENA_REQUIRE(leased || wire.has_sockets());
  }
  giver.drain();
  // The lowest free descriptor is the same, so nothing stays open.
  const int after = ::dup(giver.client_end());
  ::close(after);
  VERBENA_REQUIRE(after == before);
}

CmAddress address_from(Choices& choices) {
  static constexpr uint8_t kHosts[][4] = {{0, 0, 0, 0}, {10, 0, 0, 1}, {10, 0, 0, 2}, {127, 0, 0, 1}};
  CmAddress address{};
  address.family = AF_INET;
  std::memcpy(address.address, kHosts[choices.below(std::size(kHosts))], 4);
  address.port = htons(static_cast<uint16_t>(7000 + choices.below(3)));
  if (choices.below(8) == 0) choices.fill(address);
  return address;
}

LedgerEntry entry_from(Choices& choices) {
  LedgerEntry entry;
  if (choices.below(16) == 0) choices.fill(entry);
  entry.kind = choices.below(4);
  entry.user = 1000 + choices.below(3);
  entry.port_space = choices.yes() ? static_cast<uint16_t>(RDMA_PS_TCP) : choices.number<uint16_t>();
  entry.flags = static_cast<uint16_t>(choices.below(4));
  entry.local_id = choices.below(8);
  entry.remote_id = choices.below(3);
  entry.local_qpn = choices.below(3);
  entry.source = address_from(choices);
  if (choices.yes()) entry.destination = address_from(choices);
  return entry;
}

// A file as an earlier agent left it, or nearly.
class LedgerFile {
 public:
  const std::vector<LedgerEntry>& fill(Choices& choices) {
    std::vector<std::byte> bytes(sizeof(LedgerEntry));
    const uint32_t header[] = {0x7267646c, 1, sizeof(LedgerEntry)};
    std::memcpy(bytes.data(), header, sizeof header);
    if (choices.below(16) == 0) bytes[choices.below(16)] = static_cast<std::byte>(choices.byte());
    entries_.clear();
    for (uint32_t count = choices.below(8); count > 0; --count) {
      const LedgerEntry& entry = entries_.emplace_back(entry_from(choices));
      const auto piece = std::as_bytes(std::span(&entry, 1));
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    if (choices.below(8) == 0) bytes.resize(choices.number<uint16_t>() % (bytes.size() + 1));
    VERBENA_REQUIRE(::ftruncate(file_.get(), 0) == 0);
    VERBENA_REQUIRE(::pwrite(file_.get(), bytes.data(), bytes.size(), 0) ==
                    static_cast<ssize_t>(bytes.size()));
    return entries_;
  }
  int fd() const { return file_.get(); }

 private:
  UniqueFd file_{::memfd_create("ledger", MFD_CLOEXEC)};
  std::vector<LedgerEntry> entries_;
};

void check_claims(Choices& choices) {
  static LedgerFile file;
  static size_t others = 0;
  static Ledger ledger([] { ++others; });
  Claims::Spaces spaces;
  for (const uint16_t number : {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB}) spaces[number];
  const auto& written = file.fill(choices);
  const std::vector<LedgerEntry> read = Ledger::read(file.fd());
  VERBENA_REQUIRE(read.size() <= written.size());
  Claims claims(spaces, ledger);
  const bool has_ledger = choices.below(16) != 0;
  if (!has_ledger) {
    claims.take_over_without_ledger(kStart + std::chrono::seconds(1));
  } else {
    claims.take_over(read, kStart + std::chrono::seconds(1));
  }
  std::set<uint32_t> taken;  // each at most once
  while (!choices.empty()) {
    const uid_t user = 1000 + choices.below(3);
    const TimePoint now = kStart + std::chrono::milliseconds(10 * choices.below(128));
    if (choices.yes()) {
      cm::ConnectionInfo connection{};
      connection.local_id = choices.below(8);
      connection.remote_id = choices.below(3);
      connection.local_qpn = choices.below(3);
      const bool is_awaited = choices.below(8) == 0;
      if (!claims.take_connection(connection, user, is_awaited, now)) continue;
      VERBENA_REQUIRE(is_awaited || claims.hold(now));
      const auto had = [&](const LedgerEntry& entry) {
        return entry.kind == LedgerEntry::kConnection && entry.user == user &&
               entry.local_id == connection.local_id && entry.remote_id == connection.remote_id &&
               entry.local_qpn == connection.local_qpn;
      };
      // Without a ledger the user's claim is believed.
      VERBENA_REQUIRE(!has_ledger ||
                      (std::ranges::any_of(read, had) && taken.insert(connection.local_id).second));
    } else {
      PortBinding port;
      port.source = address_from(choices);
      port.own_family_only = choices.yes();
      claims.yield_port(choices.yes() ? static_cast<uint16_t>(RDMA_PS_TCP) : choices.number<uint16_t>(), port,
                        user);
    }
  }
  while (claims.end([&](uint32_t) { return choices.yes(); })) {
  }
  // Every port is free again.
  for (auto& [number, space] : spaces) {
    for (uint16_t port = 7000; port < 7003; ++port) {
      PortBinding any;
      any.source.family = AF_INET;
      any.source.port = htons(port);
      VERBENA_REQUIRE(space.bind(any));
      space.release(any);
    }
  }
  VERBENA_REQUIRE(!ledger.has_others());
}

// Returns bytes as encode_links() writes them, with changes.
std::vector<std::byte> link_bytes_from(Choices& choices) {
  control::LinkSnapshot snapshot;
  snapshot.next_device_index = choices.byte();
  for (uint32_t count = choices.below(3); count > 0; --count) snapshot.deleted.push_back(choices.byte());
  for (uint32_t count = choices.below(4); count > 0; --count) {
    control::Link link;
    const ConstBytes name = choices.bytes(1 + choices.below(6));
    for (const std::byte each : name) link.name += static_cast<char>('a' + static_cast<uint8_t>(each) % 4);
    link.netdev = choices.yes() ? "eth0" : "eth1";
    link.device_index = choices.below(8);
    link.interface_index = choices.below(4);
    link.automatic = choices.yes();
    uint32_t index = 0;
    for (uint32_t gids = choices.below(4); gids > 0; --gids) {
      control::GidEntry& gid = link.gids.emplace_back();
      gid.index = index += choices.below(4);
      choices.fill(gid.gid.bytes);
    }
    snapshot.links.push_back(std::move(link));
  }
  std::vector<std::byte> bytes = control::encode_links(snapshot);
  for (uint32_t changes = choices.below(6); changes > 0; --changes) {
    bytes[choices.number<uint16_t>() % bytes.size()] = static_cast<std::byte>(choices.byte());
  }
  if (choices.below(8) == 0) bytes.resize(choices.number<uint16_t>() % (bytes.size() + 1));
  return bytes;
}

void check_links(Choices& choices) {
  const std::vector<std::byte> bytes = choices.yes() ? link_bytes_from(choices) : [&] {
    const ConstBytes rest = choices.rest();
    return std::vector<std::byte>(rest.begin(), rest.end());
  }();
  const auto snapshot = control::decode_links(bytes);
  if (!snapshot) return;
  VERBENA_REQUIRE(snapshot->links.size() <= bytes.size() && snapshot->deleted.size() <= bytes.size());
  const auto again = control::decode_links(control::encode_links(*snapshot));
  VERBENA_REQUIRE(again && *again == *snapshot);
  LinkTable table;
  for (const uint32_t index : {1u, 2u, 3u}) {
    table.netdev_changed(
        {.index = index, .name = index == 1 ? "eth0" : "eth1", .up = true, .carrier = true, .mtu = 1500});
    const uint8_t host[4] = {10, 0, static_cast<uint8_t>(index), 1};
    table.address_changed(index, {roce::Address::from_ipv4(host), 24});
  }
  table.restore(*snapshot);
  table.settle();
  // Names and device indexes are unique, and each index of the GID table has at most one GID.
  std::set<std::string> names;
  std::set<uint32_t> devices;
  for (const control::Link& link : table.snapshot().links) {
    VERBENA_REQUIRE(names.insert(link.name).second && devices.insert(link.device_index).second);
    VERBENA_REQUIRE(link.device_index < table.snapshot().next_device_index);
    VERBENA_REQUIRE(link.name.find('/') == std::string::npos && link.name[0] != '\0' && link.name != "..");
    uint32_t next = 0;
    for (const control::GidEntry& gid : link.gids) {
      VERBENA_REQUIRE(gid.index >= next && gid.index < control::kGidTableLength);
      next = gid.index + 1;
    }
  }
}

}  // namespace
}  // namespace verbena::agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::agent;
  verbena::fuzz::Choices choices(data, size);
  switch (choices.below(3)) {
    case 0:
      check_slots(choices);
      break;
    case 1:
      check_claims(choices);
      break;
    default:
      check_links(choices);
  }
  return 0;
}
