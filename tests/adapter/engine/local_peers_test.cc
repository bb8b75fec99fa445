// SPDX-License-Identifier: Apache-2.0
// A shard and other slots of its host. The test is the agent, and the other process.
#include "adapter/engine/local_peers.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "adapter/engine/support/call_clock.h"
#include "adapter/engine/support/given_files.h"
#include "adapter/engine/support/shard_test.h"
#include "adapter/engine/support/watches.h"
#include "adapter/memory/guarded.h"
#include "base/lingering_socket.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_reader.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kOtherSlot = 9;
constexpr roce::Qpn kOtherQpn = roce::Qpn::in_slot(kOtherSlot, 4);

roce::Address address(uint8_t last) {
  const uint8_t ipv4[] = {10, 0, 0, last};
  return roce::Address::from_ipv4(ipv4);
}

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    ours = UniqueFd(fds[0]);
    theirs = UniqueFd(fds[1]);
  }
  UniqueFd ours;
  UniqueFd theirs;
};

class LocalPeersTest : public ShardTest {
 protected:
  LocalPeersTest() {
    test::forget_given_files();
    memory::install_fault_guard();
    path.source = address(1);
    path.destination = address(1);
    peers = std::make_unique<LocalPeers>(*shard, [this](uint32_t slot) -> Result<void> {
      asked.push_back(slot);
      return {};
    });
    peers->set_addresses({address(1), address(7)});
    peers->measure_calls_by(clock);
  }
  ~LocalPeersTest() override { local_qp.reset(); }

  const transport::Route* find(roce::Qpn destination = kOtherQpn) {
    return shard->exclusively([&] { return peers->find(path, destination); });
  }
  void answer(Ends& ends, bool asked_by_us = true) {
    peers->connect({shard->slot(), kOtherSlot, asked_by_us, 0, std::move(ends.ours)});
  }
  void refuse(int error) { peers->connect({shard->slot(), kOtherSlot, true, error, {}}); }
  // What came by the sockets is read.
  void look() {
    test::await_hang_ups();  // lines that have ended
    shard->exclusively([&] {
      peers->on_woken();
      peers->receive(64, {});
    });
    test::await_hang_ups();
  }
  // The other process takes what we offer, and answers. Like one of another user it has no board.
  std::unique_ptr<LocalLine> accept(Ends& ends) {
    auto line = LocalLine::await(std::move(ends.theirs));
    line->read_socket();
    look();
    line->read_socket();
    return line;
  }
  std::unique_ptr<LocalLine> open() {
    find();
    Ends ends;
    answer(ends);
    return accept(ends);
  }
  static std::vector<Operation> read(LocalLine& line) {
    std::vector<Operation> operations;
    line.reader().receive(
        100, [&](const auto& incoming) { operations.push_back(incoming.packet.headers.operation()); },
        [](const auto&, const auto&) { return false; }, [](roce::ParseError) { ADD_FAILURE(); });
    return operations;
  }
  void send_to(LocalLine& line, roce::Qpn destination, Operation operation = Operation::kSendOnly,
               roce::Service service = roce::Service::kRc) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(service, operation);
    headers.destination = destination;
    ASSERT_EQ(line.writer().send({path, headers, {}, 0}), transport::SendStatus::kSent);
  }
  void send_opcode_to(LocalLine& line, roce::Qpn destination, uint8_t opcode) {
    roce::Headers headers;
    headers.opcode = opcode;
    headers.destination = destination;
    ASSERT_EQ(line.writer().send({path, headers, {}, 0}), transport::SendStatus::kSent);
  }
  void send_datagram(LocalLine& line, roce::Qpn destination, roce::Qpn source) {
    roce::Headers headers;
    headers.opcode = roce::kUdSendOnlyOpcode;
    headers.destination = destination;
    headers.source = source;
    ASSERT_EQ(line.writer().send({path, headers, {}, 0}), transport::SendStatus::kSent);
  }
  uint64_t dropped_for_bad_source() {
    return shard->exclusively([&] { return uint64_t{dropped(net::DropReason::kBadSource)}; });
  }
  // A line that the process at this slot asks for and offers.
  std::unique_ptr<LocalLine> invite_by(uint32_t slot, uid_t user = 0) {
    Ends ends;
    peers->connect({shard->slot(), slot, false, 0, std::move(ends.ours), user});
    test::await_hang_ups();  // the socket, if it is refused
    auto line = LocalLine::offer(std::move(ends.theirs));
    look();
    if (!line) return nullptr;
    (*line)->read_socket();
    look();
    return std::move(*line);
  }
  // A QP that is connected to the other process.
  ScriptedQp& connect_qp() {
    local_qp =
        std::make_unique<ScriptedQp>(roce::Qpn(add_qpn()), &shard->routes(), path, kOtherQpn, IBV_QPT_RC);
    add(*local_qp);
    return *local_qp;
  }

  FakeCallClock clock;  // calls on sockets of other users take no time
  roce::Path path;
  std::vector<uint32_t> asked;
  std::unique_ptr<LocalPeers> peers;
  std::unique_ptr<ScriptedQp> local_qp;
};

// ---- who is reached so

TEST_F(LocalPeersTest, AsksTheAgentOnceForASlotOfThisHost) {
  EXPECT_EQ(find(), nullptr);
  EXPECT_EQ(find(), nullptr);
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
}

// Any user may have sent the packet, with any slot in it.
TEST_F(LocalPeersTest, ASlotThatOnlyAPacketNamesIsNotAskedFor) {
  const auto find_open = [&] {
    return shard->exclusively([&] { return peers->find_open(path, kOtherQpn); });
  };
  EXPECT_EQ(find_open(), nullptr);
  EXPECT_THAT(asked, IsEmpty());
  const auto line = open();
  EXPECT_NE(find_open(), nullptr);
}

TEST_F(LocalPeersTest, AnAddressOfAnotherHostIsNotAskedFor) {
  path.destination = address(2);
  EXPECT_EQ(find(), nullptr);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(LocalPeersTest, AnyAddressOfTheHostWillDo) {
  const auto line = open();
  path.destination = address(7);
  EXPECT_NE(find(), nullptr);
}

TEST_F(LocalPeersTest, NeitherMulticastNorTheGeneralServiceIsTheWayToASlot) {
  EXPECT_EQ(find(roce::kMulticastQpn), nullptr);
  EXPECT_EQ(find(roce::Qpn(1)), nullptr);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(LocalPeersTest, IsReachedWhenTheOtherHasAccepted) {
  find();
  Ends ends;
  answer(ends);
  EXPECT_EQ(find(), nullptr) << "only offered";
  const auto line = accept(ends);
  EXPECT_TRUE(line->is_open());
  ASSERT_NE(find(), nullptr);
  EXPECT_TRUE(find()->traits.lossless);
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
}

TEST_F(LocalPeersTest, IsReachedByALineThatTheOtherAskedFor) {
  Ends ends;
  answer(ends, false);
  auto line = LocalLine::offer(std::move(ends.theirs));
  ASSERT_TRUE(line);
  look();
  (*line)->read_socket();
  look();
  EXPECT_TRUE((*line)->is_open());
  EXPECT_NE(find(), nullptr);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(LocalPeersTest, ARefusalIsRememberedForAWhile) {
  find();
  refuse(ENOENT);
  EXPECT_EQ(find(), nullptr);
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
}

TEST_F(LocalPeersTest, WhoClosesTheSocketDoesNotWantIt) {
  find();
  Ends ends;
  answer(ends);
  ends.theirs.reset();
  look();
  EXPECT_EQ(find(), nullptr);
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
}

TEST_F(LocalPeersTest, WhatIsNoOfferIsHungUpOn) {
  for (const size_t bytes : {2, 16, 100}) {
    Ends ends;
    answer(ends, false);
    const std::vector<char> nonsense(bytes, 'x');
    ASSERT_GT(::send(ends.theirs.get(), nonsense.data(), bytes, 0), 0);
    look();
    char byte;
    EXPECT_EQ(::recv(ends.theirs.get(), &byte, 1, 0), 0) << bytes;
  }
  EXPECT_EQ(find(), nullptr);
}

TEST_F(LocalPeersTest, ReachesItsOwnSlotWithoutTheAgent) {
  const roce::Qpn own = qp->config().qpn;
  EXPECT_NE(find(own), nullptr);
  EXPECT_THAT(asked, IsEmpty());
}

// ---- many others, who may be of other users

// More of them than are looked at in one go, each of which has always something to say.
TEST_F(LocalPeersTest, WhoRingWithoutEndAreHeardInTurns) {
  std::vector<std::unique_ptr<LocalLine>> lines;
  for (uint32_t slot = kOtherSlot; slot < kOtherSlot + 32; ++slot) lines.push_back(invite_by(slot));
  look();
  const auto unheard = [&] {
    return std::ranges::count_if(lines, [](const auto& line) {
      int bytes = 0;
      return ::ioctl(line->fd(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
    });
  };
  for (const auto& line : lines) {
    line->read_socket();
    ASSERT_TRUE(line->is_open());
    for (int i = 0; i < 10; ++i) line->ring();
  }
  look();
  EXPECT_GT(unheard(), 0) << "all that there was, at once";
  for (int i = 0; i < 32; ++i) look();
  EXPECT_EQ(unheard(), 0) << "nothing stays unheard";
}

TEST_F(LocalPeersTest, ThoseWhoAskUnaskedAreNotMoreThanSome) {
  constexpr uint32_t kMax = GuestPlaces::kMax;
  constexpr uint32_t kFirst = 100;
  std::vector<std::unique_ptr<LocalLine>> lines;
  for (uint32_t i = 0; i < 2 * kMax; ++i) lines.push_back(invite_by(kFirst + i));
  for (uint32_t i = 0; i < 2 * kMax; ++i) EXPECT_EQ(lines[i] != nullptr, i < kMax) << i;
  // One that has ended makes room.
  lines[0].reset();
  look();
  lines[0] = invite_by(kFirst + kMax);
  ASSERT_NE(lines[0], nullptr);
  lines[0]->read_socket();
  EXPECT_TRUE(lines[0]->is_open());
}

TEST_F(LocalPeersTest, OfAnotherUserFewerMayAskUnasked) {
  constexpr uid_t kUser = 1'000'000;
  std::vector<std::unique_ptr<LocalLine>> lines;
  for (uint32_t slot = 100; slot < 132; ++slot) lines.push_back(invite_by(slot, kUser));
  EXPECT_EQ(std::ranges::count_if(lines, [](const auto& line) { return line == nullptr; }), 16);
  EXPECT_NE(invite_by(200, kUser + 1), nullptr);
}

TEST_F(LocalPeersTest, ThePlacesForThemAreThoseOfAllShards) {
  peers.reset();
  GuestPlaces places;
  for (uint32_t i = 1; i < GuestPlaces::kMax; ++i) ASSERT_TRUE(places.take());
  peers = std::make_unique<LocalPeers>(
      *shard, [](uint32_t) -> Result<void> { return {}; }, nullptr, &places);
  peers->set_addresses({address(1)});
  auto line = invite_by(100);
  EXPECT_NE(line, nullptr);
  EXPECT_EQ(invite_by(101), nullptr);
  places.give_back();  // by another shard
  EXPECT_NE(invite_by(101), nullptr);
  line.reset();
  peers.reset();
  EXPECT_TRUE(places.take());
  EXPECT_TRUE(places.take());
  EXPECT_FALSE(places.take());
}

TEST_F(LocalPeersTest, OneThatWasAskedForIsNeverTooMany) {
  std::vector<std::unique_ptr<LocalLine>> lines;
  for (uint32_t slot = 100; slot < 200; ++slot) lines.push_back(invite_by(slot));
  find();
  refuse(EAGAIN);
  const auto line = invite_by(kOtherSlot);
  ASSERT_NE(line, nullptr);
  line->read_socket();
  EXPECT_TRUE(line->is_open());
  EXPECT_NE(find(), nullptr);
}

// ---- both ask at once

class BothAsk : public LocalPeersTest {
 protected:
  // What the other offers by an invitation of its own.
  std::unique_ptr<LocalLine> invite(uint32_t slot) {
    Ends ends;
    peers->connect({shard->slot(), slot, false, 0, std::move(ends.ours)});
    auto line = LocalLine::offer(std::move(ends.theirs));
    EXPECT_TRUE(line);
    look();
    (*line)->read_socket();
    look();
    return std::move(*line);
  }
  std::unique_ptr<LocalLine> answer_of(uint32_t slot) {
    Ends ends;
    peers->connect({shard->slot(), slot, true, 0, std::move(ends.ours)});
    return accept(ends);
  }
  static constexpr uint32_t kLowerSlot = kSlot - 1;
  static constexpr roce::Qpn kLowerQpn = roce::Qpn::in_slot(kLowerSlot, 4);
};

TEST_F(BothAsk, TheLowerSlotsLineStays) {
  find();
  const auto theirs = invite(kOtherSlot);
  EXPECT_EQ(theirs->state(), LocalLine::State::kOffered) << "it waits for ours";
  const auto ours = answer_of(kOtherSlot);
  EXPECT_TRUE(ours->is_open());
  EXPECT_NE(find(), nullptr);
  theirs->read_socket();
  EXPECT_EQ(theirs->state(), LocalLine::State::kLost);
}

TEST_F(BothAsk, TheHigherSlotTakesTheOthers) {
  find(kLowerQpn);
  const auto theirs = invite(kLowerSlot);
  EXPECT_TRUE(theirs->is_open());
  EXPECT_NE(find(kLowerQpn), nullptr);
  Ends ends;
  peers->connect({shard->slot(), kLowerSlot, true, 0, std::move(ends.ours)});
  test::await_hang_ups();
  char byte;
  EXPECT_EQ(::recv(ends.theirs.get(), &byte, 1, 0), 0) << "our own is of no use any more";
}

// The other hangs up what it does not need.
TEST_F(BothAsk, TheHigherSlotIsNotRefusedByIt) {
  find(kLowerQpn);
  Ends ends;
  peers->connect({shard->slot(), kLowerSlot, true, 0, std::move(ends.ours)});
  const auto theirs = invite(kLowerSlot);
  EXPECT_TRUE(theirs->is_open());
  ends.theirs.reset();
  look();
  EXPECT_NE(find(kLowerQpn), nullptr);
}

TEST_F(BothAsk, TheOthersLineIsUsedWhenOursComesToNothing) {
  find();
  const auto theirs = invite(kOtherSlot);
  refuse(EAGAIN);
  look();
  theirs->read_socket();
  look();
  EXPECT_TRUE(theirs->is_open());
  EXPECT_NE(find(), nullptr);
}

TEST_F(BothAsk, TheOthersLineIsUsedWhenOursIsHungUp) {
  find();
  Ends ends;
  answer(ends);
  const auto theirs = invite(kOtherSlot);
  ends.theirs.reset();
  look();
  look();
  theirs->read_socket();
  look();
  EXPECT_TRUE(theirs->is_open());
  EXPECT_NE(find(), nullptr);
}

TEST_F(BothAsk, WhoIsInvitedDoesNotAsk) {
  Ends ends;
  answer(ends, false);
  EXPECT_EQ(find(), nullptr);
  EXPECT_THAT(asked, IsEmpty());
}

// ---- packets

TEST_F(LocalPeersTest, AQpSendsByTheLineAndReceivesFromIt) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(read(*line), ElementsAre(Operation::kSendOnly));
  EXPECT_THAT(sent(), IsEmpty()) << "not by the port";
  send_to(*line, connected.config().qpn);
  shard->poll();
  EXPECT_EQ(connected.received, 1u);
}

TEST_F(LocalPeersTest, AQpIsMovedWhenTheLineOpens) {
  ScriptedQp& connected = connect_qp();
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
  EXPECT_THAT(asked, ElementsAre(kOtherSlot));
  Ends ends;
  answer(ends);
  const auto line = accept(ends);
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_THAT(read(*line), ElementsAre(Operation::kSendOnly));
}

TEST_F(LocalPeersTest, QpsOfOneShardReachEachOther) {
  local_qp = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, qp->config().qpn);
  add(*local_qp);
  qp->attributes().destination = local_qp->config().qpn;
  local_qp->post();
  shard->ring(*local_qp);
  shard->poll();
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(LocalPeersTest, APacketOfAnotherProcessThanTheQpsPeerIsDropped) {
  const auto line = open();
  qp->attributes().destination = roce::Qpn::in_slot(kOtherSlot + 1, 4);
  send_to(*line, qp->config().qpn);
  shard->poll();
  EXPECT_EQ(qp->received, 0u);
  EXPECT_EQ(shard->exclusively([&] { return uint64_t{dropped(net::DropReason::kBadSource)}; }), 1u);
}

// A CNP, and the control packets of Verbena's own, are of no transport service.
TEST_F(LocalPeersTest, DropsControlPacketsOfAnotherProcessThanTheQpsPeer) {
  const auto line = open();
  connect_qp();
  local_qp->attributes().destination = roce::Qpn::in_slot(kOtherSlot + 1, 4);
  for (const uint8_t opcode : {roce::kCnpOpcode, roce::kStoppedOpcode, roce::kSackOpcode}) {
    send_opcode_to(*line, local_qp->config().qpn, opcode);
  }
  shard->poll();
  EXPECT_EQ(local_qp->received, 0u);
  EXPECT_EQ(dropped_for_bad_source(), 3u);
  local_qp->attributes().destination = kOtherQpn;
  send_opcode_to(*line, local_qp->config().qpn, roce::kStoppedOpcode);
  shard->poll();
  EXPECT_EQ(local_qp->received, 1u);
}

// The slot of the QP's peer is one of the peer's host. Another process may have the same slot of this host.
TEST_F(LocalPeersTest, DropsPacketsThatNameAnAddressOfAnotherHost) {
  const auto line = open();
  connect_qp();
  path.source = address(2);
  send_to(*line, local_qp->config().qpn);
  path.source = address(1);
  path.destination = address(2);
  send_to(*line, local_qp->config().qpn);
  shard->poll();
  EXPECT_EQ(local_qp->received, 0u);
  EXPECT_EQ(dropped_for_bad_source(), 2u);
  path.destination = address(7);
  send_to(*line, local_qp->config().qpn);
  shard->poll();
  EXPECT_EQ(local_qp->received, 1u);
}

TEST_F(LocalPeersTest, ChecksThePathAgainWhenAddressesChange) {
  const auto line = open();
  connect_qp();
  send_to(*line, local_qp->config().qpn);
  shard->poll();
  EXPECT_EQ(local_qp->received, 1u);
  peers->set_addresses({address(7)});
  send_to(*line, local_qp->config().qpn);
  shard->poll();
  EXPECT_EQ(local_qp->received, 1u);
  peers->set_addresses({address(7)}, {address(1)});
  send_to(*line, local_qp->config().qpn);
  shard->poll();
  EXPECT_EQ(local_qp->received, 2u) << "a GID to which nothing comes may still be a source";
}

TEST_F(LocalPeersTest, DropsDatagramsThatNameAnotherProcesssQpAsTheirSource) {
  const auto line = open();
  local_qp = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, roce::Qpn(0), IBV_QPT_UD);
  ScriptedQp& datagrams = *local_qp;
  add(datagrams);
  send_datagram(*line, datagrams.config().qpn, roce::Qpn::in_slot(kOtherSlot + 1, 4));
  send_opcode_to(*line, datagrams.config().qpn, roce::kReceiverReportOpcode);
  shard->poll();
  EXPECT_EQ(datagrams.received, 0u);
  EXPECT_EQ(dropped_for_bad_source(), 2u);
  send_datagram(*line, datagrams.config().qpn, kOtherQpn);
  shard->poll();
  EXPECT_EQ(datagrams.received, 1u);
}

// Its reader says whether it takes payloads by their address: a process of another user would learn
// addresses.
TEST_F(LocalPeersTest, SendsNoAddressesToAProcessOfAnotherUser) {
  const auto line = open();
  line->reader().lane().lane().takes_lent.store(1);
  const transport::Route* const route = find();
  ASSERT_NE(route, nullptr);
  const std::vector<std::byte> payload(shm::kMaxPayload);
  const ConstBytes piece = payload;
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, Operation::kSendOnly);
  headers.destination = kOtherQpn;
  for (uint64_t streamed = 0; streamed < 256 << 20; streamed += payload.size()) {
    const auto sent_as = shard->exclusively([&] {
      return route->sink->send({path, headers, {&piece, 1}, static_cast<uint32_t>(payload.size())});
    });
    ASSERT_EQ(sent_as, transport::SendStatus::kSent);
    ASSERT_FALSE(route->direct->lends());
    read(*line);
  }
}

// Any user of the host can write to the wire in the peer's name, who guesses its numbers.
TEST_F(LocalPeersTest, AQpWhosePeerHasComeByMemoryHearsNobodyByTheWire) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  packet_arrives_for(connected.config().qpn);
  shard->poll();
  EXPECT_EQ(connected.received, 1u) << "the peer may not have moved yet";
  send_to(*line, connected.config().qpn);
  shard->poll();
  EXPECT_EQ(connected.received, 2u);
  packet_arrives_for(connected.config().qpn);
  shard->poll();
  EXPECT_EQ(connected.received, 2u);
  EXPECT_EQ(shard->exclusively([&] { return uint64_t{dropped(net::DropReason::kBadSource)}; }), 1u);
}

TEST_F(LocalPeersTest, AQpThatIsConnectedAnewHearsTheWireUntilItsPeerComesByMemory) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  // A shard that gets packets by memory asks its port in one of many polls only (PortAsking).
  const auto poll_until = [&](uint32_t received) {
    for (int i = 0; i < 1000 && connected.received < received; ++i) shard->poll();
    return connected.received;
  };
  send_to(*line, connected.config().qpn);
  ASSERT_EQ(poll_until(1), 1u);
  shard->exclusively([&] { connected.reroute(); });
  packet_arrives_for(connected.config().qpn);
  EXPECT_EQ(poll_until(2), 2u);
}

TEST_F(LocalPeersTest, APacketForAQpThatThereIsNotIsDropped) {
  const auto line = open();
  send_to(*line, roce::Qpn::in_slot(shard->slot(), 77));
  send_to(*line, roce::Qpn::in_slot(shard->slot() + 1, 77));
  shard->poll();
  EXPECT_EQ(shard->exclusively([&] { return uint64_t{dropped(net::DropReason::kNoQueuePair)}; }), 1u);
  EXPECT_EQ(shard->exclusively([&] { return uint64_t{dropped(net::DropReason::kForeignSlot)}; }), 1u);
}

TEST_F(LocalPeersTest, TheLastWordsOfAProcessAreHeard) {
  auto line = open();
  ScriptedQp& connected = connect_qp();
  send_to(*line, connected.config().qpn);
  line.reset();
  look();
  EXPECT_EQ(connected.received, 1u);
  EXPECT_EQ(find(), nullptr);
}

// The process still has its end, and the slot goes to another one.
TEST_F(LocalPeersTest, ALineEndsWithTheLeaseOfItsSlot) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  send_to(*line, connected.config().qpn);
  peers->connect({shard->slot(), kOtherSlot, false, ESTALE, {}});
  test::await_hang_ups();
  EXPECT_EQ(connected.received, 1u) << "sent before the end";
  EXPECT_EQ(shard->exclusively([&] { return peers->find_open(path, kOtherQpn); }), nullptr);
  line->read_socket();
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
  const auto next = invite_by(kOtherSlot);
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(next->is_open());
  EXPECT_NE(find(), nullptr);
}

// Under the address sanitizer: nothing is told of a line that is gone.
TEST_F(LocalPeersTest, ALineThatEndsWhileAChildStillHasItsSocketIsForgotten) {
  find();
  Ends ends;
  const UniqueFd inherited(::fcntl(ends.ours.get(), F_DUPFD_CLOEXEC, 0));
  answer(ends);
  auto line = accept(ends);
  ASSERT_NE(find(), nullptr);
  line.reset();
  look();
  EXPECT_EQ(find(), nullptr);
  look();
  EXPECT_EQ(find(), nullptr);
}

// Likewise.
TEST_F(LocalPeersTest, ALineThatIsBrokenByNonsenseIsNotReadAgain) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  const std::byte nonsense[4]{};
  ASSERT_EQ(line->writer().lane().put(static_cast<shm::EntryKind>(77), nonsense), shm::Put::kDone);
  shard->poll();
  look();
  shard->poll();
  EXPECT_EQ(find(), nullptr);
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(LocalPeersTest, WhatIsSentToAProcessThatHasEndedIsLost) {
  auto line = open();
  ScriptedQp& connected = connect_qp();
  line.reset();
  look();
  connected.post();
  shard->ring(connected);
  EXPECT_EQ(connected.unsent(), 0u);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(LocalPeersTest, AQpWaitsWhileTheLaneIsFull) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  for (int i = 0; i < 1000; ++i) connected.post();
  shard->ring(connected);
  shard->poll();
  EXPECT_GT(connected.unsent(), 0u);
  size_t arrived = 0;
  for (int round = 0; round < 20; ++round) {
    arrived += read(*line).size();
    shard->poll();
  }
  EXPECT_EQ(arrived, 1000u);
  EXPECT_EQ(connected.unsent(), 0u);
}

// It may be the last that is heard of its QP.
TEST_F(LocalPeersTest, AnAcknowledgementFindsRoomWhereRequestsWait) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  for (int i = 0; i < 1000; ++i) connected.post();
  shard->ring(connected);
  ASSERT_GT(connected.unsent(), 0u);
  send_to(*line, connected.config().qpn);
  shard->poll();
  shard->poll();
  EXPECT_FALSE(connected.owes_acknowledgement);
  EXPECT_GT(connected.unsent(), 0u);
  std::vector<Operation> all;
  for (auto some = read(*line); !some.empty(); some = read(*line))
    all.insert(all.end(), some.begin(), some.end());
  EXPECT_EQ(all.back(), Operation::kAcknowledge);
}

TEST_F(LocalPeersTest, AnotherProcessAtTheSlotGetsALineOfItsOwn) {
  auto line = open();
  line.reset();
  look();
  Ends ends;
  answer(ends, false);
  auto next = LocalLine::offer(std::move(ends.theirs));
  ASSERT_TRUE(next);
  look();
  (*next)->read_socket();
  look();
  ScriptedQp& connected = connect_qp();
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(read(**next), ElementsAre(Operation::kSendOnly));
}

// ---- sleeping

bool is_rung(LocalLine& line) {
  char byte;
  return ::recv(line.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

TEST_F(LocalPeersTest, WhoSleepsIsRungOnce) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  ASSERT_TRUE(line->reader().lane().sleep());
  for (int i = 0; i < 3; ++i) {
    connected.post();
    shard->ring(connected);
  }
  char bells[8];
  EXPECT_EQ(::recv(line->fd(), bells, sizeof bells, MSG_DONTWAIT), 1);
  EXPECT_EQ(::recv(line->fd(), bells, sizeof bells, MSG_DONTWAIT), -1);
}

TEST_F(LocalPeersTest, WhoIsAwakeIsNotRung) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  connected.post();
  shard->ring(connected);
  EXPECT_FALSE(is_rung(*line));
}

TEST_F(LocalPeersTest, AListeningShardAsksToBeRung) {
  const auto line = open();
  EXPECT_FALSE(shard->exclusively([&] { return peers->listen(true); }));
  send_to(*line, qp->config().qpn);
  EXPECT_TRUE(line->writer().lane().must_ring());
}

TEST_F(LocalPeersTest, AShardThatFindsSomethingDoesNotSleep) {
  const auto line = open();
  send_to(*line, qp->config().qpn);
  EXPECT_TRUE(shard->exclusively([&] { return peers->listen(true); }));
  shard->poll();
  EXPECT_FALSE(shard->exclusively([&] { return peers->listen(true); }));
}

bool is_readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

class RungLocalPeers : public LocalPeersTest {
 protected:
  void SetUp() override {
    line = open();
    EXPECT_FALSE(shard->exclusively([&] { return peers->listen(true); }));
    send_to(*line, qp->config().qpn);
    ASSERT_TRUE(line->writer().lane().must_ring());
    line->ring();
  }

  std::unique_ptr<LocalLine> line;
};

// A bell that somebody else has taken does not wake it.
TEST_F(RungLocalPeers, WhoPollsLeavesTheBellToOneWhoListens) {
  for (int i = 0; i < 3000; ++i) shard->exclusively([&] { peers->receive(64, {}); });
  EXPECT_TRUE(is_readable(peers->fd()));
}

TEST_F(RungLocalPeers, WhoTakesABellAsksForTheNext) {
  shard->exclusively([&] { peers->receive(64, {}); });
  refuse(EAGAIN);  // an answer from the agent: all the sockets are looked at first
  ASSERT_FALSE(is_readable(peers->fd()));
  send_to(*line, qp->config().qpn);
  EXPECT_TRUE(line->writer().lane().must_ring());
}

TEST_F(LocalPeersTest, AChildAfterForkLeavesTheLinesToItsParent) {
  const auto line = open();
  ScriptedQp& connected = connect_qp();
  shard->before_fork();
  shard->abandon();
  connected.post();
  shard->ring(connected);
  EXPECT_THAT(read(*line), IsEmpty());
  EXPECT_EQ(find(), nullptr);
}

// The memory of another user's half is not there in the child, so a poll must not look at it.
TEST_F(LocalPeersTest, AChildAfterForkLooksAtNoLine) {
  const auto line = open();
  send_to(*line, qp->config().qpn);
  EXPECT_EQ(shard->exclusively([&] { return peers->receive(64, {}); }), 1u);
  send_to(*line, qp->config().qpn);
  shard->before_fork();
  shard->abandon();
  EXPECT_FALSE(peers->is_quiet()) << "it would look at the line for that";
  EXPECT_EQ(peers->receive(64, {}), 0u);
}

// So the other sees it when the parent ends, while the child lives on.
TEST_F(LocalPeersTest, AChildAfterForkHasNoSocketOfALineThatIsNotOpenYet) {
  find();
  Ends offered;
  answer(offered);
  Ends invited;
  peers->connect({shard->slot(), kOtherSlot, false, 0, std::move(invited.ours)});
  shard->before_fork();
  shard->abandon();
  char bytes[64];
  EXPECT_GE(::recv(offered.theirs.get(), bytes, sizeof bytes, 0), 16) << "the offer";
  EXPECT_EQ(::recv(offered.theirs.get(), bytes, sizeof bytes, 0), 0);
  EXPECT_EQ(::recv(invited.theirs.get(), bytes, sizeof bytes, 0), 0);
}

// ---- captured

class CapturedLocalPeers : public LocalPeersTest {
 protected:
  void begin() {
    auto made = capture::make_ring_file(roce::kMaxPathMtu);
    ASSERT_TRUE(made);
    file = std::move(*made);
    auto mapped = capture::RingMapping::map(file.get());
    ASSERT_TRUE(mapped);
    ring.emplace(std::move(*mapped));
    reader = std::make_unique<capture::RingReader>(ring->memory(), roce::kMaxPathMtu);
    peers->capture(file);
  }
  // What was captured since.
  std::vector<Operation> captured() {
    std::vector<Operation> operations;
    for (; const capture::Record* const record = reader->front(); reader->pop()) {
      operations.push_back(record->headers.operation());
      EXPECT_EQ(record->path, path);
      EXPECT_EQ(record->headers.destination, kOtherQpn);
    }
    return operations;
  }
  void post(ScriptedQp& to_other) {
    to_other.post();
    shard->ring(to_other);
  }

  UniqueFd file;
  std::optional<capture::RingMapping> ring;
  std::unique_ptr<capture::RingReader> reader;
};

TEST_F(CapturedLocalPeers, WhatIsSentIsCapturedUntilItEnds) {
  const auto line = open();
  ScriptedQp& to_other = connect_qp();
  post(to_other);
  begin();
  EXPECT_THAT(captured(), IsEmpty()) << "it was sent before";
  post(to_other);
  post(to_other);
  EXPECT_THAT(captured(), ElementsAre(Operation::kSendOnly, Operation::kSendOnly));
  peers->capture(UniqueFd());
  post(to_other);
  EXPECT_THAT(captured(), IsEmpty());
  EXPECT_THAT(read(*line), testing::SizeIs(4)) << "all of them were sent";
}

TEST_F(CapturedLocalPeers, AProcessThatIsMetLaterIsCapturedToo) {
  begin();
  const auto line = open();
  post(connect_qp());
  EXPECT_THAT(captured(), ElementsAre(Operation::kSendOnly));
}

TEST_F(CapturedLocalPeers, AReaderThatTakesNothingHoldsNobodyUp) {
  const auto line = open();
  ScriptedQp& to_other = connect_qp();
  begin();
  uint32_t sent = 0;
  while (reader->left_out() == 0) {
    post(to_other);
    sent += static_cast<uint32_t>(read(*line).size());
    ASSERT_LT(sent, 100'000u);
  }
  EXPECT_EQ(captured().size() + reader->left_out(), sent);
}

TEST_F(CapturedLocalPeers, AFileThatIsNoRingIsNotWritten) {
  const auto line = open();
  const UniqueFd other(::memfd_create("not a ring", MFD_CLOEXEC));
  peers->capture(other);
  post(connect_qp());
  EXPECT_THAT(read(*line), ElementsAre(Operation::kSendOnly));
}

class SlowPeer : public LocalPeersTest {
 protected:
  static constexpr uid_t kUser = 1'000'000;
  static constexpr uid_t kOther = kUser + 1;
  static bool is_heard(LocalLine& line) {
    int bytes = 0;
    return ::ioctl(line.fd(), SIOCOUTQ, &bytes) == 0 && bytes == 0;
  }
  // It rings, which nobody has asked it to, until nobody reads that any more. Returns how often it was read.
  int ring_without_end(LocalLine& line) {
    int heard = 0;
    for (; heard < 10'000; ++heard) {
      line.ring();
      look();
      if (!is_heard(line)) break;
    }
    return heard;
  }
};

TEST_F(SlowPeer, IsNotReadBeyondItsTime) {
  const auto line = invite_by(kOtherSlot, kUser);
  clock.each = std::chrono::microseconds(100);
  EXPECT_LT(ring_without_end(*line), 300);
  EXPECT_TRUE(line->is_open());
}

// A user has as much time as one of its channels, and guests as one user.
TEST_F(SlowPeer, HasNoMoreTimeByMoreChannels) {
  std::vector<std::unique_ptr<LocalLine>> lines;
  for (uint32_t i = 0; i < 16; ++i) lines.push_back(invite_by(100 + i, kUser + i % 4));
  clock.each = std::chrono::microseconds(100);
  int heard = 0;
  for (const auto& line : lines) heard += ring_without_end(*line);
  EXPECT_LT(heard, 300);
}

TEST_F(SlowPeer, GoesOnAfterItsPause) {
  const auto line = invite_by(kOtherSlot, kUser);
  clock.each = std::chrono::microseconds(100);
  ring_without_end(*line);
  clock.pass(std::chrono::seconds(10));
  look();
  EXPECT_FALSE(is_heard(*line));
  passes(std::chrono::milliseconds(1));
  shard->poll();
  look();
  EXPECT_TRUE(is_heard(*line));
}

TEST_F(SlowPeer, GetsNoOtherChannelMeanwhile) {
  const auto line = invite_by(kOtherSlot, kUser);
  clock.each = std::chrono::microseconds(100);
  ring_without_end(*line);
  clock.each = {};
  EXPECT_EQ(invite_by(kOtherSlot + 1, kUser), nullptr);
  clock.pass(std::chrono::seconds(10));
  EXPECT_NE(invite_by(kOtherSlot + 1, kUser), nullptr);
}

TEST_F(SlowPeer, DoesNotKeepUsFromOthersThatTheProgramNames) {
  const auto line = invite_by(kOtherSlot + 1, kUser);
  clock.each = std::chrono::microseconds(100);
  ring_without_end(*line);
  clock.each = {};
  EXPECT_EQ(find(), nullptr);
  refuse(EAGAIN);
  const auto next = invite_by(kOtherSlot, kOther);
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(next->is_open());
  EXPECT_NE(find(), nullptr);
}

// Otherwise each slot, and each of the agent's messages about one, costs a caller of ibv_modify_qp(3) 20 ms.
TEST_F(SlowPeer, IsAwaitedInVainOnceInTwoSeconds) {
  const auto is_worth_it = [&](uint32_t slot) {
    return shard->exclusively([&] { return peers->is_worth_waiting_for(path, roce::Qpn::in_slot(slot, 4)); });
  };
  ASSERT_TRUE(is_worth_it(kOtherSlot));
  peers->await(path, kOtherQpn, Duration::zero());
  EXPECT_FALSE(is_worth_it(kOtherSlot));
  Ends ends;
  peers->connect({shard->slot(), kOtherSlot, false, 0, std::move(ends.ours), kUser});
  EXPECT_FALSE(is_worth_it(kOtherSlot));
  EXPECT_FALSE(is_worth_it(kOtherSlot + 1));
  clock.pass(std::chrono::seconds(2));
  EXPECT_TRUE(is_worth_it(kOtherSlot + 1));
}

// Any process of the host can ask for it without end, with entries that are no packets.
TEST_F(SlowPeer, IsNotRungForRoomBeyondItsTime) {
  const auto line = invite_by(kOtherSlot, kUser);
  ASSERT_TRUE(line->is_open());
  clock.each = std::chrono::microseconds(100);
  int rings = 0;
  for (int i = 0; i < 1000; ++i) {
    while (line->writer().lane().put(shm::EntryKind::kPath, {}) == shm::Put::kDone) {
    }
    ASSERT_TRUE(line->writer().wait_for_room());
    shard->exclusively([&] { peers->receive(64, {}); });
    for (char byte; ::recv(line->fd(), &byte, 1, MSG_DONTWAIT) == 1;) ++rings;
  }
  EXPECT_GT(rings, 10);
  EXPECT_LT(rings, 300);
}

}  // namespace
}  // namespace verbena::engine
