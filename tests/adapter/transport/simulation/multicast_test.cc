// SPDX-License-Identifier: Apache-2.0
// Multicast groups on a network that loses, reorders, duplicates and corrupts packets. Each QP that is
// attached to a group when a datagram reaches its host gets one copy, and no other QP gets any.
//
// VERBENA_SEED=n runs that seed only.
#include "adapter/transport/multicast.h"

#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/host.h"
#include "adapter/transport/simulation/seeds.h"
#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/ud.h"

namespace verbena::transport {
namespace {

#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr uint64_t kSeeds = 20;
#else
constexpr uint64_t kSeeds = 150;
#endif

constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kReceives = 64;
constexpr uint32_t kMaxPayload = 1024;
constexpr uint32_t kPlace = kGrhBytes + kMaxPayload;
constexpr size_t kGroups = 2;
constexpr size_t kHosts = 2;
constexpr size_t kQpsOfHost = 4;

roce::Address group_address(size_t group) {
  const uint8_t bytes[4] = {239, 1, 2, static_cast<uint8_t>(group + 1)};
  return roce::Address::from_ipv4(bytes);
}

struct Datagram {
  size_t group = 0;
  uint32_t length = 0;
  uint32_t qkey = kQkey;
  const QueuePair* sender = nullptr;
  bool is_valid = true;  // false: no QP may get it
};

// The datagrams sent, known to all stations. A datagram's number is its immediate data.
class Sent {
 public:
  uint32_t add(const Datagram& datagram) {
    all_.push_back(datagram);
    return static_cast<uint32_t>(all_.size() - 1);
  }
  const Datagram& operator[](uint32_t number) const { return all_[number]; }
  size_t size() const { return all_.size(); }
  static std::byte content(uint32_t number, size_t at) {
    return static_cast<std::byte>(number * 31 + at * 7);
  }

 private:
  std::deque<Datagram> all_;
};

// A host that delivers to its groups. It also keeps a list, computed independently, of the copies each QP
// must get.
class Station : public Host {
 public:
  Station(net::SimulatedNetwork& network, const roce::Address& address, uint64_t seed, const Sent& sent)
      : Host(network, address, seed), network_(network), sent_(sent), outbox_(memory().add(kMaxPayload)) {
    for (size_t i = 0; i < kQpsOfHost; ++i) add_member(i % 2 == 1);
  }

  void on_packet(const IncomingPacket& incoming) override {
    for (size_t group = 0; group < kGroups; ++group) {
      if (incoming.path.destination != group_address(group)) continue;
      expect_copies(group, incoming);
      groups_[group].fan_out(
          incoming, [&](const roce::Address& a) { return a == port().address(); },
          [&](QueuePair& qp) { qp.on_packet(incoming, network_.now()); });
    }
  }

  // Attaches the member to the group, or detaches it if it is attached.
  void toggle(size_t index, size_t group) {
    Member& member = members_[index];
    if (member.attached.erase(group) == 0) {
      ASSERT_TRUE(groups_[group].attach({member.qp, member.blocks_own}));
      member.attached.insert(group);
    } else {
      ASSERT_TRUE(groups_[group].detach(*member.qp));
    }
    network_.leave(port(), group_address(group));
    if (!groups_[group].empty()) network_.join(port(), group_address(group));
  }

  QueuePair& qp(size_t index) { return *members_[index].qp; }

  void post(size_t index, uint32_t number) {
    const Datagram& datagram = sent_[number];
    ibv_sge sge = outbox_.sge(0, datagram.length);
    for (size_t i = 0; i < datagram.length; ++i) outbox_.data()[i] = Sent::content(number, i);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htobe32(number);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.ud.remote_qpn = roce::kMulticastQpn.value();
    wr.wr.ud.remote_qkey = datagram.qkey;
    const roce::Path path = path_between(port().address(), group_address(datagram.group));
    ASSERT_TRUE(post_send(qp(index), wr, &path));
    // The outbox is used again, so the datagram must leave now, however busy the port is.
    for (int tries = 0; qp(index).has_urgent(); ++tries) {
      ASSERT_LT(tries, 1000);
      qp(index).transmit(network_.now(), 1, true);
    }
  }

  // Sends packets of the kinds that must not be delivered, which no QP of ours would send.
  void send_strange(uint64_t kind, uint32_t number, QueuePair& victim) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kUd, roce::Operation::kSendOnlyImmediate);
    headers.destination = roce::kMulticastQpn;
    headers.qkey = kQkey;
    headers.source = roce::Qpn(0x4711);
    headers.immediate = number;
    if (kind == 0) headers.destination = victim.config().qpn;
    if (kind == 1) headers.pkey = 0x1234;
    if (kind == 2)
      headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnlyImmediate);
    const ConstBytes payload = outbox_.bytes(0, 8);
    const roce::Path path = path_between(port().address(), group_address(sent_[number].group));
    while (port().send({path, headers, {&payload, 1}, 8}) == SendStatus::kBusy) continue;
  }

  void poll() {
    for (Member& member : members_) {
      ibv_wc wc;
      while (member.simulated->recv_cq->poll(1, &wc) == 1) {
        check(member, wc);
        post_receive(member, wc.wr_id);
      }
    }
  }

  // Returns the number of copies delivered in total.
  uint64_t copies() const { return copies_; }
  void check_nothing_is_missing() const {
    for (const Member& member : members_)
      EXPECT_TRUE(member.expected.empty()) << "no copy of " << member.expected.front();
  }

 private:
  struct Member {
    SimulatedQp* simulated = nullptr;
    QueuePair* qp = nullptr;
    Buffer* inbox = nullptr;
    bool blocks_own = false;
    std::set<size_t> attached;
    std::deque<uint32_t> expected;
  };

  void add_member(bool blocks_own) {
    Member member;
    member.simulated = &add_qp<UdQueuePair>({.send_requests = 4, .recv_requests = kReceives});
    member.qp = member.simulated->qp.get();
    member.blocks_own = blocks_own;
    member.inbox = &memory().add(size_t{kReceives} * kPlace);
    QpAttributes& attributes = member.qp->attributes();
    attributes.qkey = kQkey;
    attributes.path_mtu = kMaxPayload;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) member.qp->enter(state);
    for (uint64_t i = 0; i < kReceives; ++i) post_receive(member, i);
    members_.push_back(std::move(member));
  }

  static void post_receive(Member& member, uint64_t id) {
    ibv_sge sge = member.inbox->sge(id * kPlace, kPlace);
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(*member.qp, wr));
  }

  void expect_copies(size_t group, const IncomingPacket& incoming) {
    const uint32_t number = incoming.packet.headers.immediate;
    ASSERT_LT(number, sent_.size());
    const Datagram& datagram = sent_[number];
    if (!datagram.is_valid || datagram.qkey != kQkey) return;
    for (Member& member : members_) {
      const bool own = datagram.sender == member.qp;
      if (member.attached.contains(group) && !(own && member.blocks_own)) member.expected.push_back(number);
    }
  }

  void check(Member& member, const ibv_wc& wc) {
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    const uint32_t number = be32toh(wc.imm_data);
    ASSERT_FALSE(member.expected.empty()) << "a copy of " << number << " that is not for it";
    ASSERT_EQ(number, member.expected.front());
    member.expected.pop_front();
    ++copies_;
    const Datagram& datagram = sent_[number];
    ASSERT_EQ(wc.byte_len, kGrhBytes + datagram.length);
    ASSERT_EQ(wc.src_qp, datagram.sender->config().qpn.value());
    const Bytes place = member.inbox->bytes(wc.wr_id * kPlace, wc.byte_len);
    ASSERT_EQ(std::memcmp(place.data() + kGrhBytes - 4, group_address(datagram.group).ipv4(), 4), 0);
    for (size_t i = 0; i < datagram.length; ++i) ASSERT_EQ(place[kGrhBytes + i], Sent::content(number, i));
  }

  net::SimulatedNetwork& network_;
  const Sent& sent_;
  Buffer& outbox_;
  MulticastMembers groups_[kGroups];
  std::vector<Member> members_;
  uint64_t copies_ = 0;
};

class Multicast : public testing::Test {
 protected:
  void begin(uint64_t seed) {
    random_ = Random(seed);
    sent_ = {};
    stations_.clear();
    network_ = std::make_unique<net::SimulatedNetwork>(seed);
    for (size_t i = 0; i < kHosts; ++i) {
      stations_.push_back(
          std::make_unique<Station>(*network_, ipv4(static_cast<uint8_t>(i + 1)), seed + i, sent_));
    }
  }
  Station& any_station() { return *stations_[random_.below(kHosts)]; }

  void send_something(bool strange) {
    Station& station = any_station();
    const size_t index = random_.below(kQpsOfHost);
    Datagram datagram;
    datagram.group = random_.below(kGroups);
    datagram.length = static_cast<uint32_t>(random_.below(kMaxPayload + 1));
    datagram.sender = &station.qp(index);
    datagram.is_valid = !strange;
    if (random_.one_in(10)) datagram.qkey = kQkey + 1;
    const uint32_t number = sent_.add(datagram);
    if (strange) return station.send_strange(random_.below(3), number, any_station().qp(index));
    station.post(index, number);
  }
  void time_passes() {
    network_->advance_to(network_->now() + std::chrono::microseconds(random_.below(20)));
    for (const auto& station : stations_) {
      station->progress(network_->now());
      station->poll();
    }
  }
  void until_silence() {
    while (network_->next_arrival() != kNever && !HasFatalFailure()) time_passes();
    for (const auto& station : stations_) station->check_nothing_is_missing();
  }
  uint64_t copies() const {
    uint64_t sum = 0;
    for (const auto& station : stations_) sum += station->copies();
    return sum;
  }

  Random random_{0};
  Sent sent_;
  std::unique_ptr<net::SimulatedNetwork> network_;
  std::vector<std::unique_ptr<Station>> stations_;
};

TEST_F(Multicast, GivesOneCopyToEachAttachedQueuePairAndNothingToOthers) {
  uint64_t all_copies = 0;
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    begin(seed);
    network_->conditions() = {
        .loss = 30'000, .duplication = 30'000, .reordering = 50'000, .corruption = 30'000, .busy = 20'000};
    for (int step = 0; step < 300 && !HasFailure(); ++step) {
      if (random_.one_in(5)) any_station().toggle(random_.below(kQpsOfHost), random_.below(kGroups));
      send_something(random_.one_in(8));
      time_passes();
    }
    until_silence();
    ASSERT_FALSE(HasFailure());
    all_copies += copies();
  }
  EXPECT_GT(all_copies, seeds_up_to(kSeeds).size() * 300);
}

// On a faultless network each QP of both hosts gets each datagram once, the sending host's QPs included.
TEST_F(Multicast, LosesAndDoublesNothingByItself) {
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    begin(seed);
    for (const auto& station : stations_) {
      for (size_t i = 0; i < kQpsOfHost; ++i) {
        for (size_t group = 0; group < kGroups; ++group) station->toggle(i, group);
      }
    }
    constexpr uint64_t kDatagrams = 100;
    uint64_t expected = 0;
    for (uint64_t i = 0; i < kDatagrams && !HasFailure(); ++i) {
      send_something(false);
      const Datagram& datagram = sent_[static_cast<uint32_t>(i)];
      const bool to_itself =
          datagram.sender == &stations_[0]->qp(0) || datagram.sender == &stations_[0]->qp(2) ||
          datagram.sender == &stations_[1]->qp(0) || datagram.sender == &stations_[1]->qp(2);
      if (datagram.qkey == kQkey) expected += kHosts * kQpsOfHost - (to_itself ? 0 : 1);
      time_passes();
    }
    until_silence();
    ASSERT_FALSE(HasFailure());
    ASSERT_EQ(copies(), expected);
  }
}

}  // namespace
}  // namespace verbena::transport
