// SPDX-License-Identifier: Apache-2.0
// A peer that sends arbitrary packets in any state of the QP. QPs of every service answer, fail or drop. They
// access only the memory that they were given, and each posted request completes exactly once.
//
// VERBENA_SEED=n runs that seed only.
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/support/shared_test.h"
#include "adapter/transport/uc.h"

namespace verbena::transport {
namespace {

using Op = roce::Operation;

constexpr std::byte kUntouched{0xa5};
constexpr uint64_t kDomain = 3;

#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr uint64_t kSeeds = 60;
#else
constexpr uint64_t kSeeds = 300;
#endif
constexpr int kSteps = 400;

// A buffer whose middle is registered. The bytes around it must not change.
class Island {
 public:
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kShore = 8192;

  Island(memory::KeyTable& keys, memory::Access access, memory::PdId pd)
      : storage_(kBytes + 2 * kShore, kUntouched) {
    region_.base = storage_.data() + kShore;
    region_.iova = reinterpret_cast<uint64_t>(region_.base);
    region_.length = kBytes;
    region_.access = access;
    region_.pd = pd;
    EXPECT_TRUE(keys.insert(&region_));
  }
  uint64_t address(size_t offset = 0) const { return region_.iova + offset; }
  uint32_t key() const { return region_.key; }
  bool shores_untouched() const {
    const auto is_untouched = [](std::byte b) { return b == kUntouched; };
    return std::all_of(storage_.begin(), storage_.begin() + kShore, is_untouched) &&
           std::all_of(storage_.end() - kShore, storage_.end(), is_untouched);
  }
  bool untouched() const {
    return shores_untouched() && std::ranges::all_of(storage_, [](std::byte b) { return b == kUntouched; });
  }

 private:
  std::vector<std::byte> storage_;
  memory::Region region_;
};

// The posted requests that have not completed.
class Account {
 public:
  uint64_t open() {
    open_.insert(next_);
    return next_++;
  }
  void close(uint64_t id) { EXPECT_EQ(open_.erase(id), 1u) << id << " came back twice, or was never posted"; }
  void forget() { open_.clear(); }
  size_t size() const { return open_.size(); }

 private:
  std::set<uint64_t> open_;
  uint64_t next_ = 1;
};

template <class Qp>
struct Traits;
template <>
struct Traits<RcQueuePair> {
  static constexpr roce::Service kService = roce::Service::kRc;
};
template <>
struct Traits<UcQueuePair> {
  static constexpr roce::Service kService = roce::Service::kUc;
};
template <>
struct Traits<UdQueuePair> {
  static constexpr roce::Service kService = roce::Service::kUd;
};
template <>
struct Traits<XrcInitiator> {
  static constexpr roce::Service kService = roce::Service::kXrc;
};
template <>
struct Traits<XrcTarget> {
  static constexpr roce::Service kService = roce::Service::kXrc;
};

// A QP and its hostile peer. `shared`: the QP receives from a shared queue, as an XRC target always does.
template <class Qp>
class Siege {
 public:
  static constexpr bool kTarget = std::is_same_v<Qp, XrcTarget>;
  static constexpr bool kReceives = !std::is_same_v<Qp, XrcInitiator>;

  Siege(uint64_t seed, bool shared)
      : random_(seed), shared_(kReceives && (shared || kTarget)), endpoint_(options()) {
    endpoint_.attributes().qkey = 0x11;
    endpoint_.attributes().rnr_retry = 2;
    endpoint_.bring_up();
  }

  void run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      act();
      take_completions();
      revive();
    }
    endpoint_.qp->enter(IBV_QPS_ERR);
    endpoint_.transmit();
    take_completions();
    EXPECT_EQ(sends_.size(), 0u) << "send requests are lost";
    const uint32_t waiting = srq_ == nullptr ? 0 : srq_->ring().posted() - srq_->ring().consumed();
    EXPECT_EQ(receives_.size(), waiting) << "receive requests are lost";
    EXPECT_TRUE(inbox_.shores_untouched() && open_.shores_untouched()) << "memory beside regions was written";
    EXPECT_TRUE(read_only_.untouched()) << "memory that may only be read was written";
    EXPECT_TRUE(foreign_.untouched()) << "another protection domain's memory was written";
  }

 private:
  EndpointOptions options() {
    EndpointOptions o;
    o.keys = &keys_;
    if (!shared_) return o;
    make_queue();
    o.recv_requests = 0;
    if (!kTarget) {
      o.srq = srq_.get();
    } else {
      o.srqs = &table_;
      o.xrc_domain = kDomain;
    }
    return o;
  }
  void make_queue() {
    queues::SharedReceiveQueue::Config config;
    config.requests = 16;
    config.sges = queues::kMaxSge;
    config.pd = kTestPd;
    if (kTarget) {
      config.cq = srq_cq_.get();
      config.number = *table_.reserve();
      config.xrc_domain = kDomain;
    }
    srq_ = *queues::SharedReceiveQueue::create(config);
    if (kTarget) table_.add(*srq_);
  }
  // Removes an XRC queue with all its requests, and creates another.
  void replace_queue() {
    if (!kTarget) return;
    table_.remove(srq_->number());
    endpoint_.qp->receives().forget(*srq_);
    receives_.forget();
    make_queue();
  }

  void act() {
    const uint64_t what = random_.below(100);
    if (what < 60) {
      strike();
    } else if (what < 75) {
      post_receive();
    } else if (what < 85) {
      post_send();
    } else if (what < 95) {
      endpoint_.sink.room = random_.one_in(4) ? static_cast<int>(random_.below(3)) : -1;
      endpoint_.transmit(static_cast<uint32_t>(1 + random_.below(20)), random_.one_in(2));
      endpoint_.sink.packets.clear();
      endpoint_.sink.room = -1;
    } else if (what < 98) {
      if (endpoint_.qp->deadline() != kNever) endpoint_.wait_for_timer();
    } else {
      change();
    }
  }
  void change() {
    switch (random_.below(4)) {
      case 0:
        endpoint_.qp->enter(IBV_QPS_ERR);
        break;
      case 1:
        if (endpoint_.qp->state() == IBV_QPS_RTS && !kTarget) {
          endpoint_.qp->enter(IBV_QPS_SQD);
          endpoint_.transmit(3);
          endpoint_.qp->enter(endpoint_.qp->state() == IBV_QPS_SQD ? IBV_QPS_RTS : IBV_QPS_ERR);
        }
        break;
      case 2:
        replace_queue();
        break;
      default:
        endpoint_.attributes().access = random_.one_in(4) ? 0 : kAllAccess;
    }
  }

  ibv_sge some_memory(const Island& island) {
    const uint64_t from = random_.below(Island::kBytes);
    ibv_sge sge{island.address(from), static_cast<uint32_t>(random_.below(Island::kBytes - from + 1)),
                island.key()};
    if (random_.one_in(40)) sge.lkey ^= 0x100;
    return sge;
  }
  void post_receive() {
    if (!kReceives || endpoint_.qp->state() == IBV_QPS_ERR) return;
    ibv_sge list[2] = {some_memory(inbox_), some_memory(inbox_)};
    ibv_recv_wr wr{};
    wr.sg_list = list;
    wr.num_sge = static_cast<int>(random_.below(3));
    queues::RecvQueue& ring = shared_ ? srq_->ring() : endpoint_.qp->recv_queue();
    if (ring.posted() - ring.consumed() >= 16) return;
    wr.wr_id = receives_.open();
    ASSERT_TRUE(post_recv(ring, wr));
  }
  void post_send() {
    if (kTarget) return;
    const queues::SendQueue& ring = endpoint_.qp->send_queue();
    if (endpoint_.qp->state() == IBV_QPS_ERR || ring.posted() - ring.consumed() >= 16) return;
    static constexpr ibv_wr_opcode kOpcodes[] = {
        IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV};
    constexpr bool kDatagrams = std::is_same_v<Qp, UdQueuePair>;
    ibv_sge sge = some_memory(inbox_);
    ibv_send_wr wr{};
    wr.opcode = kDatagrams ? IBV_WR_SEND : kOpcodes[random_.below(random_.one_in(20) ? 6 : 5)];
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) sge.length = 8;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = random_.one_in(5) ? IBV_SEND_FENCE : 0;
    wr.wr_id = sends_.open();
    ASSERT_TRUE(transport::post_send(*endpoint_.qp, wr, kDatagrams ? &endpoint_.attributes().path : nullptr));
  }

  // Sends a packet. Most are in order, some of them with one fault; a few have arbitrary contents, as far as
  // they can be parsed.
  void strike() {
    if (random_.one_in(6)) return random_.one_in(5) ? name_reads() : report();
    const roce::Service service = random_.one_in(30) ? any_service() : Traits<Qp>::kService;
    const auto operation = static_cast<Op>(random_.below(32));
    const uint8_t opcode = roce::make_opcode(service, operation);
    if (!roce::kOpcodes[opcode].exists()) return;
    roce::Headers headers;
    headers.opcode = opcode;
    headers.destination = roce::Qpn(0x11);
    headers.psn =
        headers.info().is_request ? endpoint_.qp->next_receive_psn() : endpoint_.qp->next_send_psn() - 1;
    if (random_.one_in(6)) headers.psn = headers.psn + static_cast<int32_t>(random_.below(9)) - 4;
    if (random_.one_in(50)) headers.psn = roce::Psn(static_cast<uint32_t>(random_.next()));
    if (random_.one_in(100)) headers.pkey = 0x1234;
    headers.ack_request = random_.one_in(2);
    headers.qkey = random_.one_in(10) ? 0x12 : 0x11;
    headers.xrc_srq = srq_ != nullptr && !random_.one_in(20) ? srq_->number()
                                                             : static_cast<uint32_t>(random_.below(1 << 24));
    aim(headers);
    headers.syndrome = static_cast<uint8_t>(random_.one_in(3) ? random_.next() : 0);
    headers.atomic_original = headers.swap_add = headers.compare = random_.next();
    const size_t mtu = endpoint_.attributes().path_mtu;
    std::vector<std::byte> payload(random_.one_in(2) ? mtu : random_.below(mtu + 8));
    for (std::byte& b : payload) b = std::byte{0x5a};
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    deliver(headers, payload);
  }
  // Sends a packet that belongs to no message: a SACK (mostly of packets that were sent), the notice that
  // SACKs are understood, or a CNP.
  void report() {
    static constexpr uint8_t kOpcodes[] = {roce::kSackOpcode, roce::kSackOpcode,
                                           roce::kSackConfirmationOpcode, roce::kCnpOpcode};
    roce::Headers headers;
    headers.opcode = kOpcodes[random_.below(4)];
    headers.destination = roce::Qpn(0x11);
    const roce::Psn next = headers.opcode == roce::kSackConfirmationOpcode ? endpoint_.qp->next_receive_psn()
                                                                           : endpoint_.qp->next_send_psn();
    headers.psn = next - static_cast<uint32_t>(random_.below(20)) - Sack::kPast;
    Sack arrivals;
    arrivals.expected = next - static_cast<uint32_t>(random_.below(random_.one_in(10) ? 1 << 24 : 30));
    arrivals.continues = random_.one_in(4);
    for (roce::Psn first = arrivals.expected; arrivals.count < random_.below(8); ++arrivals.count) {
      const uint64_t most = random_.one_in(30) ? 1 << 24 : 6;
      const auto count = static_cast<uint32_t>(random_.below(most));
      first = first + static_cast<uint32_t>(random_.below(most));
      arrivals.ranges[arrivals.count] = {first, count};
      first = first + count;
    }
    std::array<std::byte, Sack::kMaxBytes> payload;
    const uint32_t bytes = arrivals.write(payload);
    deliver(headers, {payload.data(), bytes});
    endpoint_.now += std::chrono::microseconds(random_.below(2000));
  }
  // Sends a list of repeated READ requests, some of which were sent before.
  void name_reads() {
    roce::Headers headers;
    headers.opcode = roce::kRepeatedReadsOpcode;
    headers.destination = roce::Qpn(0x11);
    const roce::Psn next = endpoint_.qp->next_receive_psn();
    headers.psn = next - static_cast<uint32_t>(random_.below(20)) - Sack::kPast;
    RepeatedReads reads;
    for (uint64_t i = random_.below(6); i > 0; --i) {
      roce::Headers request;
      aim(request);
      const uint64_t most = random_.one_in(10) ? 1 << 24 : 6;
      const roce::Psn psn = next + static_cast<uint32_t>(random_.below(most)) - 2;
      reads.add({psn, request.address, request.rkey, request.dma_length});
    }
    std::array<std::byte, RepeatedReads::kMaxBytes> payload;
    const uint32_t bytes = reads.write(payload);
    deliver(headers, {payload.data(), random_.one_in(10) ? random_.below(bytes + 1) : bytes});
  }
  roce::Service any_service() {
    static constexpr roce::Service kAll[] = {roce::Service::kRc, roce::Service::kUc, roce::Service::kUd,
                                             roce::Service::kXrc};
    return kAll[random_.below(4)];
  }
  void aim(roce::Headers& headers) {
    const Island* targets[] = {&open_, &open_, &open_, &open_, &read_only_, &foreign_};
    const Island& target = *targets[random_.below(6)];
    headers.rkey = random_.one_in(30) ? static_cast<uint32_t>(random_.next()) : target.key();
    headers.address = target.address(random_.below(Island::kBytes) & ~7ull);
    headers.dma_length = static_cast<uint32_t>(random_.below(random_.one_in(3) ? 5000 : 600));
    if (random_.one_in(20)) headers.address -= random_.below(Island::kBytes);
    if (random_.one_in(50)) headers.address = random_.next();
    if (random_.one_in(50)) headers.dma_length = static_cast<uint32_t>(random_.next());
  }
  void deliver(const roce::Headers& headers, ConstBytes payload) {
    std::vector<std::byte> bytes(roce::kMaxHeaderBytes + payload.size() + 3 + roce::kIcrcBytes);
    const uint32_t length = roce::encode(headers, bytes);
    const bool carries = headers.info().carries_payload;
    if (carries) std::ranges::copy(payload, bytes.begin() + length);
    bytes.resize(length + (carries ? payload.size() + headers.pad : 0) + roce::kIcrcBytes);
    if (random_.one_in(20)) bytes[random_.below(length)] ^= static_cast<std::byte>(1 << random_.below(8));
    const auto packet = roce::parse(bytes);
    if (packet) endpoint_.receive(packet->headers, packet->payload);
  }

  void take_completions() {
    ibv_wc wc[16];
    for (int n; (n = endpoint_.send_cq->poll(16, wc)) > 0;) {
      for (int i = 0; i < n; ++i) sends_.close(wc[i].wr_id);
    }
    for (queues::CompletionQueue* cq : {endpoint_.recv_cq.get(), srq_cq_.get()}) {
      for (int n; (n = cq->poll(16, wc)) > 0;) {
        for (int i = 0; i < n; ++i) receives_.close(wc[i].wr_id);
      }
    }
  }
  // In the error state, checks that all requests of the QP have been flushed, resets the QP and brings it up
  // again.
  void revive() {
    if (endpoint_.qp->state() == IBV_QPS_SQE) endpoint_.transmit();
    if (endpoint_.qp->state() == IBV_QPS_RTS) return;
    if (endpoint_.qp->state() != IBV_QPS_ERR) endpoint_.qp->enter(IBV_QPS_ERR);
    endpoint_.transmit();
    take_completions();
    ASSERT_EQ(sends_.size(), 0u);
    ASSERT_EQ(receives_.size(), shared_ ? srq_->ring().posted() - srq_->ring().consumed() : 0);
    endpoint_.sink.packets.clear();
    endpoint_.qp->enter(IBV_QPS_RESET);
    endpoint_.bring_up();
  }

  Random random_;
  const bool shared_;
  memory::KeyTable keys_{1, 1 << 10};
  Island inbox_{keys_, IBV_ACCESS_LOCAL_WRITE, kTestPd};
  Island open_{keys_, kAllAccess, kTestPd};
  Island read_only_{keys_, IBV_ACCESS_REMOTE_READ, kTestPd};
  Island foreign_{keys_, kAllAccess, kTestPd + 1};
  queues::SharedReceiveQueueTable table_{0};
  EventLog log_;
  std::unique_ptr<queues::CompletionQueue> srq_cq_ = *queues::CompletionQueue::create(64, &log_);
  std::unique_ptr<queues::SharedReceiveQueue> srq_;
  Endpoint<Qp> endpoint_;
  Account sends_;
  Account receives_;
};

template <class Qp>
class HostilePeer : public testing::Test {};
using Kinds = testing::Types<RcQueuePair, UcQueuePair, UdQueuePair, XrcInitiator, XrcTarget>;
TYPED_TEST_SUITE(HostilePeer, Kinds);

TYPED_TEST(HostilePeer, HarmsNothingAndLosesNoRequest) {
  memory::install_fault_guard();
  const char* asked = std::getenv("VERBENA_SEED");
  const uint64_t first = asked != nullptr ? std::strtoull(asked, nullptr, 0) : 1;
  const uint64_t last = asked != nullptr ? first : kSeeds;
  for (uint64_t seed = first; seed <= last && !this->HasFailure(); ++seed) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    Siege<TypeParam>(seed, seed % 2 == 0).run();
  }
}

}  // namespace
}  // namespace verbena::transport
