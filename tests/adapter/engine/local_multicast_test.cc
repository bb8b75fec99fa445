// SPDX-License-Identifier: Apache-2.0
// Multicast between processes of a host: what is sent and taken by memory beside the wire. The test is the
// agent, and the other process.
#include <array>
#include <cstring>
#include <optional>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "adapter/engine/local_peers.h"
#include "adapter/engine/support/call_clock.h"
#include "adapter/engine/support/handshake.h"
#include "adapter/engine/support/shard_test.h"
#include "adapter/memory/guarded.h"
#include "base/lingering_socket.h"

namespace verbena::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Asked = LocalLine::Asked;

constexpr uint32_t kOtherSlot = 9;
constexpr roce::Qpn kOtherQpn = roce::Qpn::in_slot(kOtherSlot, 4);
constexpr uint32_t kInterface = 2;
constexpr uint32_t kQkey = 0x1234;

roce::Address address(uint8_t first, uint8_t last) {
  const uint8_t ipv4[] = {first, 0, 0, last};
  return roce::Address::from_ipv4(ipv4);
}
const GroupKey kGroup{address(239, 5), kInterface};

// Of a link with one address.
class Member : public GroupMember {
 public:
  explicit Member(LocalPeers& peers, const GroupKey& key = kGroup, uint8_t link_address = 1)
      : key_(key), link_address_(address(10, link_address)) {
    peers.add(*this);
  }
  GroupKey key() const override { return key_; }
  bool is_ours(const roce::Address& a) const override { return a == link_address_; }
  bool has_qkey(uint32_t qkey) const override { return qkey == kQkey; }
  void on_copy(const transport::IncomingPacket& packet) override {
    psns.push_back(packet.packet.headers.psn.value());
  }

  std::vector<uint32_t> psns;  // of the copies

 private:
  const GroupKey key_;
  const roce::Address link_address_;
};

class LocalMulticast : public ShardTest {
 protected:
  LocalMulticast() {
    memory::install_fault_guard();
    path.source = address(10, 1);
    path.destination = kGroup.group;
    path.interface_index = kInterface;
    peers = std::make_unique<LocalPeers>(*shard, [this](uint32_t slot) -> Result<void> {
      asked.push_back(slot);
      return {};
    });
    peers->set_addresses({address(10, 1), address(10, 7)});
    peers->measure_calls_by(clock);
  }
  ~LocalMulticast() override { sender.reset(); }

  // The other's end, when it is to say what it likes.
  UniqueFd invite() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    peers->connect({shard->slot(), kOtherSlot, true, 0, UniqueFd(fds[0])});
    return UniqueFd(fds[1]);
  }
  // What came by the sockets and by memory is read.
  void look() {
    shard->exclusively([&] {
      peers->on_woken();
      peers->receive(64, {});
    });
    test::await_hang_ups();
  }
  std::unique_ptr<LocalLine> open() {
    auto line = LocalLine::await(invite());
    line->read_socket();
    look();
    line->read_socket();
    EXPECT_TRUE(line->is_open());
    return line;
  }
  // Sends so many to the group.
  void send(uint32_t count = 1) {
    if (sender == nullptr) {
      sender = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, roce::kMulticastQpn);
      add(*sender);
    }
    for (uint32_t i = 0; i < count; ++i) sender->post();
    shard->ring(*sender);
    shard->poll();
  }
  static size_t read(LocalLine& line) {
    size_t read = 0;
    line.reader().receive(
        10000,
        [&](const auto& incoming) {
          EXPECT_EQ(incoming.packet.headers.destination, roce::kMulticastQpn);
          EXPECT_EQ(incoming.path.destination, kGroup.group);
          ++read;
        },
        [](const auto&, const auto&) { return false; }, [](roce::ParseError) { ADD_FAILURE(); });
    return read;
  }
  // A copy by the other.
  void copy(LocalLine& line, uint32_t psn, roce::Qpn from = kOtherQpn,
            roce::Service service = roce::Service::kUd) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(service, roce::Operation::kSendOnly);
    headers.destination = roce::kMulticastQpn;
    headers.source = from;
    headers.psn = roce::Psn(psn);
    ASSERT_EQ(line.writer().send({path, headers, {}, 0}), transport::SendStatus::kSent);
    look();
  }
  // A datagram of this sender has come by the wire.
  bool heard(const Member& member, roce::Qpn from = kOtherQpn, uint32_t qkey = kQkey) {
    roce::Packet packet;
    packet.headers.qkey = qkey;
    packet.headers.source = from;
    packet.headers.destination = roce::kMulticastQpn;
    return shard->exclusively([&] { return peers->heard(member, {packet, path, 0}); });
  }

  roce::Path path;
  std::vector<uint32_t> asked;
  FakeCallClock clock;  // calls on sockets of other users take no time
  std::unique_ptr<LocalPeers> peers;
  std::unique_ptr<ScriptedQp> sender;
};

// ---- who sends

TEST_F(LocalMulticast, GoesByThePortAloneWhileNobodyAsks) {
  const auto line = open();
  send(3);
  EXPECT_EQ(sent().size(), 3u);
  EXPECT_EQ(read(*line), 0u);
}

TEST_F(LocalMulticast, GoesByMemoryAsWellToWhoHasAsked) {
  const auto line = open();
  EXPECT_EQ(line->ask_for(kGroup), Asked::kJustNow);
  EXPECT_EQ(line->ask_for(kGroup), Asked::kBefore);
  look();
  send(3);
  EXPECT_EQ(sent().size(), 3u);
  EXPECT_EQ(read(*line), 3u);
  EXPECT_EQ(port->counters().sent_packets, 3u) << "each is counted once";
}

TEST_F(LocalMulticast, OfAnotherGroupOrDeviceGoesByThePortAlone) {
  const auto line = open();
  line->ask_for({kGroup.group, kInterface + 1});
  line->ask_for({address(239, 6), kInterface});
  look();
  send();
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(read(*line), 0u);
}

TEST_F(LocalMulticast, GoesByThePortAloneToWhoDeclines) {
  const auto line = open();
  line->ask_for(kGroup);
  look();
  send();
  EXPECT_EQ(read(*line), 1u);
  line->decline(kGroup);
  look();
  send();
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_EQ(read(*line), 0u);
}

TEST_F(LocalMulticast, GoesOnByThePortWhenWhoHasAskedIsGone) {
  auto line = open();
  line->ask_for(kGroup);
  look();
  send();
  line.reset();
  look();
  send();
  EXPECT_EQ(sent().size(), 2u);
}

TEST_F(LocalMulticast, NobodyWaitsForOneThatTakesNothing) {
  const auto line = open();
  line->ask_for(kGroup);
  look();
  send(3 * shm::kEntries);
  while (sender->unsent() > 0) shard->poll();
  EXPECT_EQ(sent().size(), 3 * shm::kEntries);
  const size_t copies = read(*line);
  EXPECT_GT(copies, shm::kEntries / 2);
  EXPECT_LT(copies, shm::kEntries);
}

// The port, too, may be full: what it does not take comes again, and its copies with it.
TEST_F(LocalMulticast, ACopyGoesWithItsDatagram) {
  const auto line = open();
  line->ask_for(kGroup);
  look();
  sent_packets.set_capacity(0);
  send(2 * QueuePort::kMaxStaged);
  ASSERT_EQ(sender->unsent(), QueuePort::kMaxStaged);
  EXPECT_EQ(read(*line), QueuePort::kMaxStaged);
  sent_packets.set_capacity(1000);
  while (sender->unsent() > 0) shard->run_engine();
  EXPECT_EQ(sent().size(), 2 * QueuePort::kMaxStaged);
  EXPECT_EQ(read(*line), QueuePort::kMaxStaged);
}

TEST_F(LocalMulticast, HowMuchOneMayAskForIsBounded) {
  const auto line = open();
  for (uint32_t i = 0; i < LocalLine::kMaxGroups; ++i) {
    EXPECT_EQ(line->ask_for({kGroup.group, 100 + i}), Asked::kJustNow);
  }
  EXPECT_EQ(line->ask_for(kGroup), Asked::kNo);
}

TEST_F(LocalMulticast, WhatIsNoGroupIsNotAskedFor) {
  const auto line = open();
  path.destination = address(10, 1);
  line->ask_for({path.destination, kInterface});
  look();
  send();
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(read(*line), 0u);
  EXPECT_TRUE(line->is_open());
}

TEST_F(LocalMulticast, WhoAsksForHalfAGroupIsHungUpOn) {
  const auto line = open();
  const Said half{.type = kAskForGroup};
  ASSERT_EQ(::send(line->fd(), &half, sizeof half, 0), static_cast<ssize_t>(sizeof half));
  look();
  line->read_socket();
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
}

// A message of another process costs nobody more than a message, however many follow.
TEST_F(LocalMulticast, WhoAsksWithoutEndIsHeardLittleByLittle) {
  const auto line = open();
  const auto unheard = [&] {
    int bytes = 0;
    EXPECT_EQ(::ioctl(line->fd(), SIOCOUTQ, &bytes), 0);
    return bytes;
  };
  for (uint32_t i = 0; i < LocalLine::kMaxGroups; ++i) line->ask_for({kGroup.group, 100 + i});
  look();
  EXPECT_GT(unheard(), 0) << "all at once";
  for (uint32_t i = 0; i < LocalLine::kMaxGroups; ++i) look();
  EXPECT_EQ(unheard(), 0);
  EXPECT_TRUE(line->is_open());
}

// ---- who is in the group

TEST_F(LocalMulticast, AsksForAChannelAndThenForCopies) {
  Member member(*peers);
  EXPECT_FALSE(heard(member)) << "no copy is on its way yet";
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
  const auto line = open();
  EXPECT_THAT(line->wanted(), IsEmpty());
  EXPECT_TRUE(heard(member));
  EXPECT_TRUE(heard(member));
  line->read_socket();
  EXPECT_THAT(line->wanted(), ElementsAre(kGroup));
  EXPECT_EQ(line->wanted_changes(), 1u);
  shard->exclusively([&] { peers->forget(member); });
  line->read_socket();
  EXPECT_THAT(line->wanted(), IsEmpty());
}

TEST_F(LocalMulticast, OfAnotherHostIsNotAskedFor) {
  Member member(*peers);
  path.source = address(10, 2);
  EXPECT_FALSE(heard(member));
  EXPECT_THAT(asked, IsEmpty());
}

// Any user can send to a group, in the name of any slot.
TEST_F(LocalMulticast, OneWithoutTheQkeyIsNotAskedForAChannel) {
  Member member(*peers);
  EXPECT_FALSE(heard(member, kOtherQpn, kQkey + 1));
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(LocalMulticast, NoMoreSendersAreAskedForChannelsThanThereArePlacesForGuests) {
  Member member(*peers);
  for (uint32_t i = 0; i < 2 * GuestPlaces::kMax; ++i) heard(member, roce::Qpn::in_slot(100 + i, 4));
  EXPECT_EQ(asked.size(), GuestPlaces::kMax);
  // A refusal makes room.
  peers->connect({shard->slot(), 100, true, ENOENT, {}});
  heard(member, roce::Qpn::in_slot(1000, 4));
  heard(member, roce::Qpn::in_slot(1001, 4));
  EXPECT_EQ(asked.size(), GuestPlaces::kMax + 1);
  // The program's own wishes take no place.
  path.destination = address(10, 1);
  shard->exclusively([&] { peers->find(path, roce::Qpn::in_slot(1001, 4)); });
  EXPECT_EQ(asked.size(), GuestPlaces::kMax + 2);
  EXPECT_EQ(asked.back(), 1001u);
}

// It would take the message for nonsense.
TEST_F(LocalMulticast, OneOfAnOlderVersionIsNotAsked) {
  Member member(*peers);
  const UniqueFd other = invite();
  std::array<std::byte, 256> buffer;
  ASSERT_GT(::recv(other.get(), buffer.data(), buffer.size(), 0), 0);
  const auto half = make_half();
  ASSERT_TRUE(half);
  const Said answer{.type = kHalf};
  ASSERT_TRUE(send_with_credentials(other.get(), std::as_bytes(std::span(&answer, 1)), half->second.get())
                  .has_value());
  look();
  ASSERT_GT(::recv(other.get(), buffer.data(), buffer.size(), 0), 0) << "our half";
  EXPECT_FALSE(heard(member));
  EXPECT_LT(::recv(other.get(), buffer.data(), buffer.size(), 0), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(LocalMulticast, ItsOwnCopiesComeToAShardThatIsAMember) {
  Member member(*peers);
  EXPECT_TRUE(heard(member, qp->config().qpn));
  send(2);
  look();
  EXPECT_EQ(dropped(net::DropReason::kBadSource), 2u) << "a scripted QP does not say whose they are";
  EXPECT_EQ(sent().size(), 2u);
}

TEST_F(LocalMulticast, ACopyIsForTheMembersOfItsGroup) {
  Member member(*peers);
  Member another(*peers);
  Member other_group(*peers, {address(239, 6), kInterface});
  Member other_link(*peers, {kGroup.group, kInterface + 1}, 7);
  const auto line = open();
  const uint64_t before = port->counters().received_packets;
  copy(*line, 4);
  copy(*line, 5);
  EXPECT_THAT(member.psns, ElementsAre(4, 5));
  EXPECT_THAT(another.psns, ElementsAre(4, 5));
  EXPECT_THAT(other_group.psns, IsEmpty());
  EXPECT_THAT(other_link.psns, IsEmpty());
  EXPECT_EQ(port->counters().received_packets, before) << "the datagram is counted";
  path.source = address(10, 7);
  copy(*line, 6);
  EXPECT_THAT(member.psns, ElementsAre(4, 5));
  EXPECT_THAT(other_link.psns, ElementsAre(6));
}

// Two devices with one address: the datagram comes to one of them.
TEST_F(LocalMulticast, ACopyThatMayBeOfEitherDeviceIsNotTaken) {
  Member member(*peers);
  Member other_link(*peers, {kGroup.group, kInterface + 1});
  const auto line = open();
  copy(*line, 4);
  EXPECT_THAT(member.psns, IsEmpty());
  EXPECT_THAT(other_link.psns, IsEmpty());
}

TEST_F(LocalMulticast, ACopyInAnothersNameIsNotTaken) {
  Member member(*peers);
  const auto line = open();
  copy(*line, 4, roce::Qpn::in_slot(kOtherSlot + 1, 4));
  copy(*line, 5, qp->config().qpn);
  copy(*line, 6, kOtherQpn, roce::Service::kRc);
  path.source = address(10, 2);
  copy(*line, 7);
  EXPECT_THAT(member.psns, IsEmpty());
  EXPECT_EQ(dropped(net::DropReason::kBadSource), 4u);
  EXPECT_TRUE(line->is_open());
}

}  // namespace
}  // namespace verbena::engine
