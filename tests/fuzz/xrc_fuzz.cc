// SPDX-License-Identifier: Apache-2.0
// Another process that has one of our XRC domains open, and sends arbitrary messages over the domain's links:
// as the owner of targets that forward to our queues, and as the owner of queues that our targets forward to.
// Promises: it is answered or disconnected. It reaches only memory for which it names valid keys, and
// completes no receive twice. When it ends, everything that it began ends. Its messages about targets affect
// only targets of the domain.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <sys/socket.h>

#include "adapter/engine/support/queue_port.h"
#include "adapter/memory/guarded.h"
#include "adapter/transport/rc.h"
#include "adapter/xrc/domain_peers.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena::engine {
namespace {

using fuzz::Choices;
using roce::Operation;

constexpr uint64_t kDomain = 77;
constexpr uint32_t kSlot = 3;
constexpr uint32_t kOtherSlot = 9;
constexpr uint32_t kMtu = 256;
constexpr memory::PdId kPd = 4;
constexpr uint32_t kMaxReceives = 8;

TimePoint time_now{std::chrono::hours(1)};

class Host final : private queues::CompletionListener, private transport::QpEventListener {
 public:
  Host() : buffer_(4096) {
    cq_ = *queues::CompletionQueue::create(64, this);
    region_.base = buffer_.data();
    region_.iova = reinterpret_cast<uint64_t>(buffer_.data());
    region_.length = buffer_.size();
    region_.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    region_.pd = kPd;
    VERBENA_REQUIRE(keys_.insert(&region_));
    transport::QpConfig config;
    config.qpn = shard_.exclusively([&] { return shard_.reserve_qpn().value(); });
    config.keys = &keys_;
    config.routes = &shard_.routes();
    config.srqs = &srqs_;
    config.xrc_domain = kDomain;
    config.owners = &peers_;
    config.listener = this;
    config.counters = &counters_;
    target_ = std::make_unique<transport::RcQueuePair>(config, queues::SendQueue(), queues::RecvQueue(),
                                                       transport::RcQueuePair::Role::kXrcTarget);
    shard_.exclusively([&] { shard_.add(*target_); });
  }
  ~Host() override {
    shard_.exclusively([&] { shard_.remove(*target_); });
  }

  void run(Choices& choices) {
    choices_ = &choices;
    shard_.exclusively([&] { bring_up(); });
    make_queue();
    while (!choices.empty()) turn();
    end();
  }

 private:
  void on_completion_event() override {}
  void on_overflow() override {}
  void on_qp_event(ibv_event_type) override {}

  void bring_up() {
    transport::QpAttributes& attributes = target_->attributes();
    attributes.destination = roce::Qpn(0x22);
    attributes.path_mtu = kMtu;
    attributes.receive_psn = roce::Psn(200);
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 5;
    target_->enter(IBV_QPS_INIT);
    target_->enter(IBV_QPS_RTR);
  }
  void make_queue() {
    shard_.exclusively([&] {
      queue_ = *queues::SharedReceiveQueue::create({.requests = kMaxReceives,
                                                    .sges = 1,
                                                    .pd = kPd,
                                                    .cq = cq_.get(),
                                                    .number = *srqs_.reserve(),
                                                    .xrc_domain = kDomain});
      srqs_.add(*queue_);
    });
  }
  void destroy_queue() {
    shard_.exclusively([&] {
      srqs_.remove(queue_->number());
      peers_.forget(*queue_);
    });
    queue_.reset();
  }

  void turn() {
    switch (choices_->below(16)) {
      case 0:
        return connect(false);
      case 1:
        return connect(true);
      case 2:
        return say_anything();
      case 3:
      case 4:
        return answer();
      case 5:
      case 6:
        return packet_arrives();
      case 7:
        return post();
      case 8:
        time_now += std::chrono::milliseconds(choices_->byte());
        return poll();
      case 9:
        destroy_queue();
        return make_queue();
      case 10:
        (choices_->yes() ? target_link_ : owner_link_).reset();
        return poll();
      case 11:
        if (choices_->below(4) == 0) peers_.leave(kDomain);
        return;
      default:
        return request();
    }
  }

  // Connects the other process: as the owner of targets that use our queue, or of queues that our targets
  // use.
  void connect(bool asked_for) {
    const int error = asked_for && choices_->below(4) == 3 ? (choices_->yes() ? ENOENT : EAGAIN) : 0;
    int ends[2];
    VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    UniqueFd ours(ends[0]);
    (asked_for ? owner_link_ : target_link_) = UniqueFd(ends[1]);
    if (error != 0) ours.reset();
    peers_.connect({kDomain, kOtherSlot, asked_for, error, std::move(ours)});
    poll();
  }

  void say(const UniqueFd& link, ConstBytes message) {
    if (!link || message.empty()) return;
    [[maybe_unused]] const ssize_t sent = ::send(link.get(), message.data(), message.size(), MSG_NOSIGNAL);
    poll();
  }

  void say_anything() {
    std::vector<std::byte> message(choices_->byte());
    const uint32_t magic = kPeerMagic;
    if (message.size() >= 4) std::memcpy(message.data(), &magic, 4);
    const ConstBytes own = choices_->bytes(message.size());
    if (!own.empty() && choices_->yes()) std::memcpy(message.data(), own.data(), own.size());
    say(choices_->yes() ? target_link_ : owner_link_, message);
  }

  void request() {
    RequestMessage m{};
    m.magic = kPeerMagic;
    m.type =
        choices_->below(16) == 0 ? static_cast<PeerMessage>(choices_->byte() % 4) : PeerMessage::kRequest;
    m.repeated = choices_->below(4) == 0;
    m.max_dest_rd_atomic = static_cast<uint8_t>(choices_->below(5));
    m.min_rnr_timer = static_cast<uint8_t>(choices_->below(33));
    m.run = choices_->below(3);
    m.msn = choices_->byte();
    m.qpn = roce::Qpn::in_slot(choices_->below(16) == 0 ? kSlot : kOtherSlot, choices_->below(3)).value();
    m.requester = 0x22;
    m.access = choices_->byte();
    m.path_mtu = kMtu << choices_->below(6);
    if (choices_->below(16) == 0) {
      auto* const bytes = reinterpret_cast<std::byte*>(&m);
      bytes[choices_->below(sizeof m)] = static_cast<std::byte>(choices_->byte());
    }
    roce::Headers h = headers();
    const std::vector<std::byte> payload(choices_->yes() ? m.path_mtu % 4097 : choices_->byte());
    h.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    const ConstBytes piece = payload;
    const auto packet = datagram(h, {&piece, h.info().carries_payload ? 1u : 0u});
    std::vector<std::byte> whole(sizeof m);
    std::memcpy(whole.data(), &m, sizeof m);
    whole.insert(whole.end(), packet.begin(), packet.end());
    if (choices_->below(16) == 0) whole.resize(choices_->number<uint16_t>() % whole.size());
    say(target_link_, whole);
  }

  roce::Headers headers() {
    static constexpr Operation kOperations[] = {
        Operation::kSendOnly,    Operation::kSendFirst,         Operation::kSendMiddle,
        Operation::kSendLast,    Operation::kWriteOnly,         Operation::kWriteFirst,
        Operation::kWriteLast,   Operation::kReadRequest,       Operation::kFetchAdd,
        Operation::kCompareSwap, Operation::kSendOnlyImmediate, Operation::kWriteOnlyImmediate,
        Operation::kAcknowledge};
    roce::Headers h;
    h.opcode = roce::make_opcode(choices_->below(16) == 0 ? roce::Service::kRc : roce::Service::kXrc,
                                 kOperations[choices_->below(std::size(kOperations))]);
    h.psn = roce::Psn(choices_->below(16) == 0 ? choices_->number<uint32_t>() : 200 + psn_);
    if (choices_->below(8) != 0) ++psn_;
    h.ack_request = choices_->yes();
    h.destination = target_->config().qpn;
    h.xrc_srq = choices_->below(16) == 0 ? choices_->number<uint32_t>() & 0xffffff : queue_->number();
    h.address =
        region_.iova + (choices_->below(8) == 0 ? choices_->number<uint64_t>() : choices_->byte() * 8u);
    h.rkey = choices_->below(16) == 0 ? choices_->number<uint32_t>() : region_.key;
    h.dma_length = choices_->below(8) == 0 ? choices_->number<uint32_t>() : choices_->byte() * 8u;
    return h;
  }

  void answer() {
    AnswerMessage m{};
    m.magic = kPeerMagic;
    m.type = choices_->below(32) == 0 ? static_cast<PeerMessage>(choices_->byte()) : PeerMessage::kAnswer;
    m.syndrome = choices_->byte();
    m.has_event = choices_->below(8) == 0;
    m.event = choices_->byte();
    m.qpn = choices_->below(8) == 0 ? choices_->number<uint32_t>() : target_->config().qpn.value();
    m.run = choices_->below(8) == 0 ? choices_->number<uint32_t>() : last_run_;
    m.psn = choices_->below(8) == 0 ? choices_->number<uint32_t>() : 200 + choices_->below(8);
    m.msn = choices_->byte();
    say(owner_link_, std::as_bytes(std::span(&m, 1)));
  }

  // A packet from the network arrives for a target of ours, and for a queue of the other process.
  void packet_arrives() {
    roce::Headers h = headers();
    h.opcode = roce::make_opcode(roce::Service::kXrc,
                                 choices_->yes() ? Operation::kSendOnly : Operation::kSendFirst);
    h.xrc_srq = kOtherSlot << queues::SharedReceiveQueueTable::kIndexBits | 1;
    h.psn = roce::Psn(200 + choices_->below(8));
    const std::vector<std::byte> payload(kMtu);
    const ConstBytes piece = payload;
    arriving_.push(datagram(h, {&piece, 1}));
    poll();
    // Reads the forwarded requests: the other process's answers name their run.
    std::byte buffer[kMaxPeerMessage];
    while (owner_link_ && ::recv(owner_link_.get(), buffer, sizeof buffer, MSG_DONTWAIT) >=
                              static_cast<ssize_t>(sizeof(RequestMessage))) {
      RequestMessage heard;
      std::memcpy(&heard, buffer, sizeof heard);
      VERBENA_REQUIRE(heard.magic == kPeerMagic && heard.qpn == target_->config().qpn.value());
      last_run_ = heard.run;
    }
  }

  void post() {
    const std::lock_guard guard(queue_->lock());
    queues::RecvWqe* const wqe = queue_->ring().reserve();
    if (wqe == nullptr) return;
    wqe->wr_id = ++posted_;
    wqe->num_sge = 1;
    wqe->sge_space()[0] = {region_.iova, choices_->number<uint16_t>() % 4097u, region_.key};
    queue_->ring().publish(1);
  }

  void poll() {
    shard_.poll();
    std::byte buffer[kMaxPeerMessage];
    while (target_link_ && ::recv(target_link_.get(), buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
    }
    ibv_wc wc[8];
    for (int count; (count = cq_->poll(8, wc)) > 0;) {
      for (int i = 0; i < count; ++i) {
        VERBENA_REQUIRE(wc[i].wr_id >= 1 && wc[i].wr_id <= posted_);
        VERBENA_REQUIRE(std::ranges::find(completed_, wc[i].wr_id) == completed_.end());
        completed_.push_back(wc[i].wr_id);
      }
    }
    arriving_.drain();
    for (std::vector<std::byte> packet; sent_.pop(packet);) VERBENA_REQUIRE(roce::parse(packet));
  }

  void end() {
    target_link_.reset();
    owner_link_.reset();
    poll();
    peers_.leave(kDomain);
    destroy_queue();
    shard_.exclusively([&] { target_->enter(IBV_QPS_RESET); });
    time_now += std::chrono::seconds(10);
    poll();
    completed_.clear();
    posted_ = 0;
    psn_ = last_run_ = 0;
  }

  const std::unique_ptr<protocol::StatusPage> status_ = std::make_unique<protocol::StatusPage>();
  PacketQueue sent_;
  PacketQueue arriving_;
  Shard shard_{kSlot, only(std::make_unique<QueuePort>(sent_, arriving_)), *status_, 5,
               [] { return time_now; }};
  memory::KeyTable keys_{1, 16};
  queues::SharedReceiveQueueTable srqs_{kSlot};
  DomainPeers peers_{shard_, keys_, srqs_, [](const Peer::Key&) {}};
  std::vector<std::byte> buffer_;
  memory::Region region_;
  std::unique_ptr<queues::CompletionQueue> cq_;
  std::unique_ptr<queues::SharedReceiveQueue> queue_;
  transport::QpCounters counters_{};
  std::unique_ptr<transport::RcQueuePair> target_;
  UniqueFd target_link_;  // the other process's ends
  UniqueFd owner_link_;
  uint64_t posted_ = 0;
  std::vector<uint64_t> completed_;
  uint32_t psn_ = 0;
  uint32_t last_run_ = 0;
  Choices* choices_ = nullptr;
};

}  // namespace
}  // namespace verbena::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::engine;
  static const bool guarded = (verbena::memory::install_fault_guard(), true);
  static Host host;
  Choices choices(data, size);
  if (guarded) host.run(choices);
  return 0;
}
