// SPDX-License-Identifier: Apache-2.0
// A shard and another process that has one of the shard's XRC domains open. The test plays the other process
// and the agent.
#include "adapter/xrc/domain_peers.h"

#include <array>
#include <cerrno>
#include <optional>

#include <poll.h>
#include <sys/socket.h>

#include "adapter/engine/local_peers.h"
#include "adapter/engine/support/shard_test.h"
#include "adapter/memory/guarded.h"
#include "adapter/transport/rc.h"
#include "base/lingering_socket.h"
#include "base/random.h"
#include "base/seed.h"
#include "wire/roce/aeth.h"

namespace verbena::engine {
namespace {

using roce::NakCode;
using roce::Operation;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kDomain = 77;
constexpr uint32_t kOtherSlot = 9;
constexpr uint32_t kMtu = 256;
constexpr memory::PdId kPd = 4;

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

class DomainPeersTest : public ShardTest {
 protected:
  DomainPeersTest() {
    memory::install_fault_guard();
    peers = std::make_unique<DomainPeers>(*shard, keys, srqs,
                                          [this](const Peer::Key& key) { asked.push_back(key); });
  }

  void connect(bool asked_for, UniqueFd socket, int error = 0) {
    peers->connect({kDomain, kOtherSlot, asked_for, error, std::move(socket)});
  }
  void end_lease(uint32_t slot, uint32_t own_slot) { peers->connect({0, slot, false, ESTALE, {}, own_slot}); }
  void say(ConstBytes message) { ::send(ends.theirs.get(), message.data(), message.size(), MSG_NOSIGNAL); }
  // Returns the next message from the shard; empty after its end.
  std::vector<std::byte> hear() {
    std::vector<std::byte> message(kMaxPeerMessage);
    const ssize_t bytes = ::recv(ends.theirs.get(), message.data(), message.size(), MSG_DONTWAIT);
    message.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    return message;
  }
  template <class Message>
  std::optional<Message> hear_as() {
    const auto bytes = hear();
    Message message;
    if (bytes.size() < sizeof message) return std::nullopt;
    std::memcpy(&message, bytes.data(), sizeof message);
    return message;
  }
  // Whether the shard has closed its end.
  bool hung_up() {
    test::await_hang_ups();
    char byte;
    const ssize_t bytes = ::recv(ends.theirs.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return bytes == 0 || (bytes < 0 && errno == ECONNRESET);  // the shard closed with unread data
  }

  Ends ends;
  std::vector<Peer::Key> asked;
  memory::KeyTable keys{1, 16};
  queues::SharedReceiveQueueTable srqs{shard->slot()};
  std::unique_ptr<DomainPeers> peers;
};

// ---- the shard has the queue

class QueueOfOurs : public DomainPeersTest, private queues::CompletionListener {
 protected:
  QueueOfOurs() : buffer(8192) {
    cq = *queues::CompletionQueue::create(64, this);
    region.base = buffer.data();
    region.iova = reinterpret_cast<uint64_t>(buffer.data());
    region.length = buffer.size();
    region.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    region.pd = kPd;
    shard->exclusively([&] {
      EXPECT_TRUE(keys.insert(&region));
      srq = *queues::SharedReceiveQueue::create({.requests = 8,
                                                 .sges = 1,
                                                 .pd = kPd,
                                                 .cq = cq.get(),
                                                 .number = *srqs.reserve(),
                                                 .xrc_domain = kDomain});
      srqs.add(*srq);
    });
    connect(false, std::move(ends.ours));
  }
  ~QueueOfOurs() override {
    if (srq != nullptr) shard->exclusively([&] { peers->forget(*srq); });
  }

  void post(uint64_t wr_id) {
    const std::lock_guard guard(srq->lock());
    queues::RecvWqe* wqe = srq->ring().reserve();
    wqe->wr_id = wr_id;
    wqe->num_sge = 1;
    wqe->sge_space()[0] = {region.iova, 4096, region.key};
    srq->ring().publish(1);
  }
  static RequestMessage message(PeerMessage type = PeerMessage::kRequest) {
    RequestMessage m{};
    m.magic = kPeerMagic;
    m.type = type;
    m.max_dest_rd_atomic = 4;
    m.min_rnr_timer = 5;
    m.run = 1;
    m.qpn = roce::Qpn::in_slot(kOtherSlot, 5).value();
    m.requester = 0x22;
    m.access = IBV_ACCESS_REMOTE_READ;
    m.path_mtu = kMtu;
    return m;
  }
  roce::Headers headers(Operation operation, uint32_t psn) const {
    roce::Headers h;
    h.opcode = roce::make_opcode(roce::Service::kXrc, operation);
    h.psn = roce::Psn(psn);
    h.ack_request = true;
    h.xrc_srq = srq->number();
    return h;
  }
  void pass(const RequestMessage& m, const roce::Headers& h, size_t bytes) {
    const std::vector<std::byte> payload(bytes, std::byte{7});
    const ConstBytes piece = payload;
    std::vector<std::byte> whole(sizeof m);
    std::memcpy(whole.data(), &m, sizeof m);
    const auto packet = datagram(h, {&piece, 1});
    whole.insert(whole.end(), packet.begin(), packet.end());
    say(whole);
    shard->poll();
  }
  void send(Operation operation, uint32_t psn, size_t bytes) {
    pass(message(), headers(operation, psn), bytes);
  }
  std::optional<ibv_wc_status> completion() {
    ibv_wc wc;
    return cq->poll(1, &wc) == 1 ? std::optional(wc.status) : std::nullopt;
  }
  void on_completion_event() override {}
  void on_overflow() override {}

  std::vector<std::byte> buffer;
  memory::Region region;
  std::unique_ptr<queues::CompletionQueue> cq;
  std::unique_ptr<queues::SharedReceiveQueue> srq;
};

TEST_F(QueueOfOurs, TakesARequestAndAnswersIt) {
  post(1);
  send(Operation::kSendOnly, 500, 4);
  EXPECT_EQ(completion(), IBV_WC_SUCCESS);
  EXPECT_EQ(buffer[3], std::byte{7});
  const auto answer = hear_as<AnswerMessage>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->syndrome, roce::ack_syndrome());
  EXPECT_EQ(answer->psn, 500u);
  EXPECT_EQ(answer->run, 1u);
  EXPECT_EQ(answer->qpn, message().qpn);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(QueueOfOurs, AsksToWaitAsTheTargetWould) {
  send(Operation::kSendOnly, 500, 4);
  const auto answer = hear_as<AnswerMessage>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->syndrome, roce::rnr_syndrome(5));
}

TEST_F(QueueOfOurs, RespondsToTheRequesterItself) {
  roce::Headers h = headers(Operation::kReadRequest, 500);
  h.address = region.iova;
  h.rkey = region.key;
  h.dma_length = 8;
  pass(message(), h, 0);
  EXPECT_THAT(sent(), ElementsAre(Operation::kReadResponseOnly));
  const auto answer = hear_as<AnswerMessage>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->psn, 500u);
}

TEST_F(QueueOfOurs, WhatATargetLeavesUnfinishedIsFlushed) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  EXPECT_EQ(completion(), std::nullopt);
  const RequestMessage end = message(PeerMessage::kEnd);
  say(std::as_bytes(std::span(&end, 1)));
  shard->poll();
  EXPECT_EQ(completion(), IBV_WC_WR_FLUSH_ERR);
  post(2);
  send(Operation::kSendOnly, 900, 4);  // a new target with the same number
  EXPECT_EQ(completion(), IBV_WC_SUCCESS);
}

TEST_F(QueueOfOurs, WhatAProcessLeavesUnfinishedIsFlushed) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  ends.theirs.reset();
  shard->poll();
  EXPECT_EQ(completion(), IBV_WC_WR_FLUSH_ERR);
}

// The other process's request for a link was repeated. It keeps the first link that it gets.
TEST_F(QueueOfOurs, ASecondLinkDoesNotEndTheFirst) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  Ends second;
  connect(false, std::move(second.ours));
  EXPECT_FALSE(hung_up());
  EXPECT_EQ(completion(), std::nullopt);
  send(Operation::kSendLast, 501, 4);
  EXPECT_EQ(completion(), IBV_WC_SUCCESS);
  ends.theirs = std::move(second.theirs);
  EXPECT_TRUE(hung_up());
}

TEST_F(QueueOfOurs, ASecondLinkTakesThePlaceOfOneThatWasGivenUp) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  Ends second;
  ends.theirs.reset();
  connect(false, std::move(second.ours));
  EXPECT_EQ(completion(), IBV_WC_WR_FLUSH_ERR);
  ends.theirs = std::move(second.theirs);
  post(2);
  send(Operation::kSendOnly, 900, 4);
  EXPECT_EQ(completion(), IBV_WC_SUCCESS);
}

TEST_F(QueueOfOurs, ADestroyedQueueIsUnknownThoughAMessageHadBegun) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  hear();
  const uint32_t number = srq->number();
  shard->exclusively([&] {
    srqs.remove(number);
    peers->forget(*srq);
  });
  roce::Headers h = headers(Operation::kSendLast, 501);
  srq.reset();
  pass(message(), h, 4);
  const auto answer = hear_as<AnswerMessage>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->syndrome, roce::nak_syndrome(NakCode::kInvalidRequest));
  EXPECT_EQ(completion(), std::nullopt);
}

TEST_F(QueueOfOurs, HangsUpOnATargetThatMakesNoSense) {
  struct Case {
    const char* what;
    void (*spoil)(RequestMessage&, roce::Headers&);
  };
  const Case cases[] = {
      {"another protocol", [](RequestMessage& m, roce::Headers&) { m.magic ^= 1; }},
      {"an answer to nothing", [](RequestMessage& m, roce::Headers&) { m.type = PeerMessage::kAnswer; }},
      {"an unknown message",
       [](RequestMessage& m, roce::Headers&) { m.type = static_cast<PeerMessage>(77); }},
      {"a target of a third process",
       [](RequestMessage& m, roce::Headers&) { m.qpn = roce::Qpn::in_slot(kOtherSlot + 1, 5).value(); }},
      {"a target of ours",
       [](RequestMessage& m, roce::Headers&) { m.qpn = roce::Qpn::in_slot(kSlot, 0).value(); }},
      {"a target beyond all", [](RequestMessage& m, roce::Headers&) { m.qpn |= 1u << 24; }},
      {"a requester beyond all", [](RequestMessage& m, roce::Headers&) { m.requester = 1u << 24; }},
      {"no MTU", [](RequestMessage& m, roce::Headers&) { m.path_mtu = 0; }},
      {"an odd MTU", [](RequestMessage& m, roce::Headers&) { m.path_mtu = 1000; }},
      {"an MTU beyond all", [](RequestMessage& m, roce::Headers&) { m.path_mtu = 8192; }},
      {"a delay beyond all", [](RequestMessage& m, roce::Headers&) { m.min_rnr_timer = 32; }},
  };
  post(1);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Ends fresh;
    ends.theirs = std::move(fresh.theirs);
    connect(false, std::move(fresh.ours));
    RequestMessage m = message();
    roce::Headers h = headers(Operation::kSendOnly, 500);
    c.spoil(m, h);
    pass(m, h, 4);
    EXPECT_TRUE(hung_up());
    EXPECT_EQ(completion(), std::nullopt);
  }
}

// Otherwise another user's process would take 1.3 GB.
TEST_F(QueueOfOurs, HangsUpOnAProcessWhoseTargetsHaveTooManyReads) {
  post(1);
  RequestMessage m = message();
  m.max_dest_rd_atomic = 255;
  const uint32_t enough = TargetPeer::kMaxReads / m.max_dest_rd_atomic;
  for (uint32_t i = 0; i < enough; ++i) {
    m.qpn = roce::Qpn::in_slot(kOtherSlot, 5 + i).value();
    pass(m, headers(Operation::kSendOnly, 500), 4);
    ASSERT_TRUE(hear_as<AnswerMessage>()) << i;
  }
  m.type = PeerMessage::kEnd;
  say(std::as_bytes(std::span(&m, 1)));
  m.type = PeerMessage::kRequest;
  for (uint32_t i = 0; i < 2; ++i) {
    m.qpn = roce::Qpn::in_slot(kOtherSlot, 5 + enough + i).value();
    pass(m, headers(Operation::kSendOnly, 500), 4);
  }
  EXPECT_TRUE(hear_as<AnswerMessage>());
  EXPECT_TRUE(hung_up());
}

// It may name any process of the host as its requester.
TEST_F(QueueOfOurs, ARequestOpensNoChannelToItsRequester) {
  std::vector<uint32_t> wanted;
  LocalPeers local(*shard, [&](uint32_t slot) -> Result<void> {
    wanted.push_back(slot);
    return {};
  });
  local.set_addresses({roce::Address{}});
  RequestMessage m = message();
  m.requester = roce::Qpn::in_slot(33, 4).value();
  post(1);
  pass(m, headers(Operation::kSendOnly, 500), 4);
  EXPECT_EQ(completion(), IBV_WC_SUCCESS);
  EXPECT_THAT(wanted, IsEmpty());
}

TEST_F(QueueOfOurs, HangsUpOnPiecesOfMessages) {
  const RequestMessage m = message();
  for (const size_t bytes : {size_t{1}, sizeof m - 1, sizeof m}) {
    SCOPED_TRACE(bytes);
    Ends fresh;
    ends.theirs = std::move(fresh.theirs);
    connect(false, std::move(fresh.ours));
    say(std::as_bytes(std::span(&m, 1)).first(bytes));
    shard->poll();
    EXPECT_TRUE(hung_up());
  }
}

// Otherwise the thread that has the shard's lock would close the slow descriptor.
TEST_F(QueueOfOurs, HangsUpOnDescriptorsWithoutWaitingForThem) {
  const size_t before = test::open_descriptors();
  const RequestMessage m = message();
  test::LingeringSocket slow;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  const cmsghdr head{.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  const int file = slow.fd();
  std::memcpy(control.data(), &head, sizeof head);
  std::memcpy(control.data() + CMSG_LEN(0), &file, sizeof file);
  iovec data{const_cast<RequestMessage*>(&m), sizeof m};
  msghdr sent{};
  sent.msg_iov = &data;
  sent.msg_iovlen = 1;
  sent.msg_control = control.data();
  sent.msg_controllen = control.size();
  ASSERT_GT(::sendmsg(ends.theirs.get(), &sent, MSG_NOSIGNAL), 0);
  slow.reset();
  const TimePoint began = MonotonicClock::now();
  shard->poll();
  EXPECT_TRUE(hung_up());
  EXPECT_LT(MonotonicClock::now() - began, test::LingeringSocket::kAtOnce);
  slow.cut_short();
  EXPECT_TRUE(test::becomes_true([&] { return test::open_descriptors() == before - 1; }));
}

// Valid messages with some bytes changed, so that they pass the first checks.
TEST_F(QueueOfOurs, AnyMessageIsSurvived) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kMessages = 4'000;
#else
  constexpr int kMessages = 20'000;
#endif
  Random random(test::seed());
  constexpr Operation kOperations[] = {Operation::kSendOnly,    Operation::kSendFirst,
                                       Operation::kSendMiddle,  Operation::kWriteOnlyImmediate,
                                       Operation::kReadRequest, Operation::kFetchAdd};
  for (int i = 0; i < kMessages; ++i) {
    if (hung_up()) {
      Ends fresh;
      ends.theirs = std::move(fresh.theirs);
      connect(false, std::move(fresh.ours));
    }
    if (srq->ring().room() > 0) post(1);
    RequestMessage m = message(random.below(20) == 0 ? PeerMessage::kEnd : PeerMessage::kRequest);
    m.qpn += static_cast<uint32_t>(random.below(8));
    m.run = static_cast<uint32_t>(random.below(1000));
    roce::Headers h = headers(kOperations[random.below(std::size(kOperations))],
                              static_cast<uint32_t>(500 + random.below(4)));
    h.address = region.iova + random.below(16);
    h.rkey = region.key;
    h.dma_length = static_cast<uint32_t>(random.below(2000));
    const std::vector<std::byte> payload(random.below(2) == 0 ? kMtu : random.below(2000), std::byte{7});
    const ConstBytes piece = payload;
    h.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    std::vector<std::byte> whole(sizeof m);
    std::memcpy(whole.data(), &m, sizeof m);
    const auto packet = datagram(h, {&piece, 1});
    whole.insert(whole.end(), packet.begin(), packet.end());
    for (uint64_t flips = random.below(4); flips > 0; --flips) {
      whole[random.below(std::min<size_t>(whole.size(), 150))] ^= static_cast<std::byte>(random.next());
    }
    say(whole);
    shard->poll();
    while (!hear().empty()) {
    }
    ibv_wc wc;
    while (cq->poll(1, &wc) == 1) {
    }
    sent_packets.drain();
    passes(milliseconds(2));
  }
}

TEST_F(QueueOfOurs, PacketsOfOtherServicesAreDropped) {
  post(1);
  roce::Headers h = headers(Operation::kSendOnly, 500);
  h.opcode = roce::make_opcode(roce::Service::kRc, Operation::kSendOnly);
  pass(message(), h, 4);
  EXPECT_EQ(dropped(net::DropReason::kWrongService), 1u);
  EXPECT_EQ(completion(), std::nullopt);
}

TEST_F(QueueOfOurs, IsNotReachedByWhoHasAnotherDomainOpen) {
  Ends fresh;
  ends.theirs = std::move(fresh.theirs);
  peers->connect({kDomain + 1, kOtherSlot, false, 0, std::move(fresh.ours)});
  post(1);
  send(Operation::kSendOnly, 500, 4);
  const auto answer = hear_as<AnswerMessage>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->syndrome, roce::nak_syndrome(NakCode::kInvalidRequest));
  EXPECT_EQ(completion(), std::nullopt);
}

TEST_F(QueueOfOurs, ATargetThatDoesNotReadItsAnswersIsGivenUp) {
  RequestMessage m = message();
  uint32_t requests = 0;
  for (; requests < 100'000; ++requests) {
    m.run = 1 + requests;
    pass(m, headers(Operation::kSendOnly, 500), 4);  // no receive is posted
    pollfd end{ends.theirs.get(), 0, 0};
    if (::poll(&end, 1, 0) == 1) break;
    passes(milliseconds(2));
  }
  EXPECT_GT(requests, 100u) << "it has patience";
  EXPECT_LT(requests, 100'000u) << "but not without end";
}

// Its process may keep its end of the link, and another process gets the slot.
TEST_F(QueueOfOurs, IsLeftAtTheEndOfTheOtherSlotsLease) {
  post(1);
  send(Operation::kSendFirst, 500, kMtu);
  end_lease(kOtherSlot + 1, shard->slot());
  end_lease(kOtherSlot, shard->slot() + 1);
  while (hear_as<AnswerMessage>()) continue;
  EXPECT_FALSE(hung_up());
  end_lease(kOtherSlot, shard->slot());
  EXPECT_EQ(completion(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(hung_up());
}

TEST_F(QueueOfOurs, IsLeftWithTheDomain) {
  peers->leave(kDomain);
  EXPECT_TRUE(hung_up());
}

TEST_F(QueueOfOurs, AChildOfForkKeepsNoLink) {
  shard->exclusively([&] { peers->abandon(); });
  EXPECT_TRUE(hung_up());
}

// ---- the shard has the target

class TargetOfOurs : public DomainPeersTest, private transport::QpEventListener {
 protected:
  TargetOfOurs() {
    transport::QpConfig config;
    config.qpn = add_qpn();
    config.keys = &keys;
    config.routes = &shard->routes();
    config.srqs = &srqs;
    config.xrc_domain = kDomain;
    config.owners = peers.get();
    config.listener = this;
    config.counters = &counters;
    target = std::make_unique<transport::RcQueuePair>(config, queues::SendQueue(), queues::RecvQueue(),
                                                      transport::RcQueuePair::Role::kXrcTarget);
    shard->exclusively([&] {
      shard->add(*target);
      bring_up();
    });
  }
  ~TargetOfOurs() override {
    shard->exclusively([&] { shard->remove(*target); });
    target.reset();
  }

  void bring_up() {
    target->attributes().destination = roce::Qpn(0x22);
    target->attributes().path_mtu = kMtu;
    target->attributes().receive_psn = roce::Psn(200);
    target->attributes().max_dest_rd_atomic = 4;
    target->attributes().min_rnr_timer = 5;
    target->enter(IBV_QPS_INIT);
    target->enter(IBV_QPS_RTR);
  }
  void packet_arrives(uint32_t psn, uint32_t slot = kOtherSlot) {
    roce::Headers h;
    h.opcode = roce::make_opcode(roce::Service::kXrc, Operation::kSendOnly);
    h.destination = target->config().qpn;
    h.psn = roce::Psn(psn);
    h.ack_request = true;
    h.xrc_srq = slot << queues::SharedReceiveQueueTable::kIndexBits | 1;
    const std::vector<std::byte> payload(kMtu, std::byte{3});
    const ConstBytes piece = payload;
    arriving_packets.push(datagram(h, {&piece, 1}));
    shard->poll();
  }
  void tell(uint8_t syndrome, uint32_t psn, uint32_t run) {
    AnswerMessage m{};
    m.magic = kPeerMagic;
    m.type = PeerMessage::kAnswer;
    m.syndrome = syndrome;
    m.qpn = target->config().qpn.value();
    m.run = run;
    m.psn = psn;
    say(std::as_bytes(std::span(&m, 1)));
  }
  void answer(uint8_t syndrome, uint32_t psn, uint32_t run) {
    tell(syndrome, psn, run);
    shard->poll();
    shard->poll();  // the acknowledgement waits for the next verb
  }
  std::vector<uint8_t> syndromes() {
    std::vector<uint8_t> all;
    for (const roce::Headers& headers : sent_packets.drain()) all.push_back(headers.syndrome);
    return all;
  }
  void on_qp_event(ibv_event_type) override {}

  transport::QpCounters counters{};
  std::unique_ptr<transport::RcQueuePair> target;
};

TEST_F(TargetOfOurs, AsksForTheOwnerOnceAndPassesOnWhatWaited) {
  packet_arrives(200);
  packet_arrives(201);
  EXPECT_THAT(asked, ElementsAre(Peer::Key{kDomain, kOtherSlot}));
  connect(true, std::move(ends.ours));
  const auto first = hear_as<RequestMessage>();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->qpn, target->config().qpn.value());
  EXPECT_EQ(first->path_mtu, kMtu);
  EXPECT_EQ(hear().size(), sizeof(RequestMessage) + 16 + kMtu + roce::kIcrcBytes);
  EXPECT_THAT(sent(), IsEmpty());
  answer(roce::ack_syndrome(), 201, first->run);
  EXPECT_THAT(syndromes(), ElementsAre(roce::ack_syndrome()));
}

TEST_F(TargetOfOurs, RefusesWhenNobodyHasTheDomainThere) {
  packet_arrives(200);
  connect(true, {}, ENOENT);
  EXPECT_EQ(target->state(), IBV_QPS_ERR);
  EXPECT_THAT(syndromes(), ElementsAre(roce::nak_syndrome(NakCode::kInvalidRequest)));
}

TEST_F(TargetOfOurs, AsksAgainWhenTheAgentIsSilentAndGivesUpInTheEnd) {
  packet_arrives(200);
  connect(true, {}, EAGAIN);
  for (int i = 0; i < 30; ++i) {
    passes(milliseconds(101));
    shard->poll();
  }
  EXPECT_EQ(asked.size(), 20u);
  EXPECT_THAT(syndromes(), ElementsAre(roce::nak_syndrome(NakCode::kRemoteOperational)));
}

TEST_F(TargetOfOurs, TheOwnersEndAnswersForWhatItOwes) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  ends.theirs.reset();
  shard->poll();
  EXPECT_EQ(target->state(), IBV_QPS_ERR);
  EXPECT_THAT(syndromes(), ElementsAre(roce::nak_syndrome(NakCode::kRemoteOperational)));
}

TEST_F(TargetOfOurs, AnswersFromBeforeTheEndOfTheOwnersLeaseCount) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  const auto request = hear_as<RequestMessage>();
  ASSERT_TRUE(request);
  tell(roce::ack_syndrome(), 200, request->run);
  end_lease(kOtherSlot, shard->slot());
  shard->poll();
  EXPECT_EQ(target->state(), IBV_QPS_RTR);
  EXPECT_THAT(syndromes(), ElementsAre(roce::ack_syndrome()));
  EXPECT_TRUE(hung_up());
}

TEST_F(TargetOfOurs, TheEndOfTheOwnersLeaseAnswersForWhatItOwes) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  end_lease(kOtherSlot, shard->slot());
  EXPECT_EQ(target->state(), IBV_QPS_ERR);
  EXPECT_THAT(syndromes(), ElementsAre(roce::nak_syndrome(NakCode::kRemoteOperational)));
}

TEST_F(TargetOfOurs, AnOwnerThatMakesNoSenseIsGone) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  hear();
  say(std::vector<std::byte>(7));
  shard->poll();
  EXPECT_TRUE(hung_up());
  EXPECT_THAT(syndromes(), ElementsAre(roce::nak_syndrome(NakCode::kRemoteOperational)));
}

TEST_F(TargetOfOurs, AnAnswerForAnotherQueuePairIsPassedOver) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  const auto request = hear_as<RequestMessage>();
  AnswerMessage m{};
  m.magic = kPeerMagic;
  m.type = PeerMessage::kAnswer;
  m.run = request->run;
  m.psn = 200;
  for (const uint32_t qpn : {qp->config().qpn.value(), roce::Qpn::in_slot(kOtherSlot, 1).value(), 1u << 24}) {
    m.qpn = qpn;
    say(std::as_bytes(std::span(&m, 1)));
    shard->poll();
  }
  shard->poll();
  EXPECT_FALSE(hung_up());
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(TargetOfOurs, TellsTheOwnerOfItsEnd) {
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  hear();
  shard->exclusively([&] { target->enter(IBV_QPS_RESET); });
  const auto end = hear_as<RequestMessage>();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->type, PeerMessage::kEnd);
  EXPECT_EQ(end->qpn, target->config().qpn.value());
}

TEST_F(TargetOfOurs, AnyAnswerIsSurvived) {
  Random random(test::seed());
  for (int i = 0; i < 20'000; ++i) {
    if (target->state() == IBV_QPS_ERR) {
      shard->exclusively([&] {
        target->enter(IBV_QPS_RESET);
        bring_up();
      });
    }
    packet_arrives(target->next_receive_psn().value());
    Ends fresh;
    if (asked.size() > 0) {
      asked.clear();
      ends.theirs = std::move(fresh.theirs);
      connect(true, std::move(fresh.ours));
    }
    const auto request = hear_as<RequestMessage>();
    AnswerMessage m{};
    m.magic = kPeerMagic;
    m.type = PeerMessage::kAnswer;
    m.qpn = target->config().qpn.value();
    m.run = request ? request->run : 0;
    m.psn = target->next_receive_psn().value() - static_cast<uint32_t>(random.below(3));
    m.syndrome = static_cast<uint8_t>(random.next());
    auto bytes = std::as_writable_bytes(std::span(&m, 1));
    if (random.below(3) == 0) bytes[random.below(bytes.size())] ^= static_cast<std::byte>(random.next());
    say(bytes.first(random.below(50) == 0 ? random.below(bytes.size()) : bytes.size()));
    shard->poll();
    sent_packets.drain();
    passes(milliseconds(2));
  }
}

// A process that does not read its link costs a limited amount of memory, and packets. No thread waits for
// it.
TEST_F(TargetOfOurs, AFullLinkLosesNothingThatWasTaken) {
  connect(true, {});
  packet_arrives(200);
  connect(true, std::move(ends.ours));
  uint32_t psn = 201;
  for (; psn < 201 + 20'000; ++psn) {
    const roce::Psn expected = target->next_receive_psn();
    packet_arrives(psn);
    if (target->next_receive_psn() == expected) break;
  }
  ASSERT_LT(psn, 201u + 20'000) << "it never fills up";
  EXPECT_THAT(sent(), IsEmpty()) << "it is kept until there is room";
  uint32_t heard = 200;
  uint32_t run = 0;
  for (int idle = 0; idle < 3; ++idle) {
    for (auto message = hear(); !message.empty(); message = hear(), idle = 0) {
      RequestMessage request;
      std::memcpy(&request, message.data(), sizeof request);
      const auto packet = roce::parse(ConstBytes(message).subspan(sizeof request));
      ASSERT_EQ(packet->headers.psn, roce::Psn(heard++));
      run = request.run;
    }
    passes(milliseconds(2));
    shard->poll();
  }
  EXPECT_EQ(heard, psn);
  answer(roce::ack_syndrome(), psn - 1, run);
  EXPECT_THAT(syndromes(), ElementsAre(roce::ack_syndrome()));
  const auto last = hear();
  ASSERT_GT(last.size(), sizeof(RequestMessage));
  EXPECT_EQ(roce::parse(ConstBytes(last).subspan(sizeof(RequestMessage)))->headers.psn, roce::Psn(psn));
}

}  // namespace
}  // namespace verbena::engine
