// SPDX-License-Identifier: Apache-2.0
// Two RC QPs, and everything that can happen to a request, drawn from a seed: memory deregistered at either
// end, answers late, duplicated or reordered, NAKs, RNR NAKs, timeouts, QPs without a timeout, and state
// changes. Each request completes once, in order, with a status that the model can explain. No QP waits for a
// packet that the other will never send.
#include <array>
#include <deque>
#include <iterator>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/seeds.h"
#include "adapter/transport/support/endpoint.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kMrBytes = 8192;
// Distance between the first PSNs of two incarnations of a QP: no packet of one is in the window of the
// other.
constexpr uint32_t kPsnsApart = 1 << 20;

// Another process that uses memory windows directly, and takes a while to release an invalidated one.
class SlowUsers final : public memory::KeyPublisher {
 public:
  explicit SlowUsers(Random& random) : random_(random) {}
  void publish(const memory::Opening&) override {}
  void withdraw(uint32_t) override {}
  void await_users() override {}
  uint64_t users() override { return random_.one_in(3) ? 0 : ++latest_; }
  bool are_gone(uint64_t) override { return random_.one_in(3); }

 private:
  Random& random_;
  uint64_t latest_ = 0;
};

// A buffer, and whether it has been deregistered.
struct Mr {
  Buffer* buffer = nullptr;
  bool is_gone = false;
};

struct Request {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool is_signaled = false;
  bool is_misformed = false;  // an atomic without room for its result
  const Mr* local = nullptr;  // null if no local memory is checked
  const Mr* remote = nullptr;
  bool local_was_gone = false;  // deregistered before the request was posted
  bool remote_was_gone = false;

  bool takes_receive() const { return opcode != IBV_WR_RDMA_WRITE && (is_send() || is_write()); }
  bool is_send() const { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }
  bool is_write() const { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
  bool is_atomic() const {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  }
};

class RequesterModel : public testing::TestWithParam<uint32_t> {
 protected:
  // One end: a QP, its memory, and the requests it has posted.
  struct End : DirectAccess {
    End(Random& drawn_from, const EndpointOptions& options)
        : random(drawn_from), users(drawn_from), e(options) {
      e.memory.keys().set_publisher(users);
    }

    // Another process's memory: each request succeeds or fails at random.
    bool is_best_for(const Run&) override { return random.one_in(2); }
    bool read(const PeerRange& range, uint32_t, uint32_t, std::span<const ConstBytes>) override {
      return takes(range);
    }
    bool write(const PeerRange& range, uint32_t, uint32_t, std::span<const ConstBytes>) override {
      return takes(range);
    }
    std::optional<uint64_t> change(const PeerRange& range, const AtomicChange&) override {
      return takes(range) ? std::optional<uint64_t>(1) : std::nullopt;
    }
    bool takes(const PeerRange& range) {
      if (random.one_in(2)) return false;
      return std::ranges::any_of(peer->mrs,
                                 [&](const Mr& mr) { return !mr.is_gone && mr.buffer->key() == range.rkey; });
    }

    Random& random;
    SlowUsers users;
    Endpoint<RcQueuePair> e;
    End* peer = nullptr;
    std::deque<Mr> mrs;
    std::deque<Request> posted;       // not yet completed, oldest first
    std::deque<SentPacket> arriving;  // at this end
    std::vector<SentPacket> old;      // answers that may arrive a second time
    uint64_t next_id = 1;
    bool has_failed = false;         // its requests are flushed from now on
    bool is_broken = false;          // the program ended its QP, which no longer answers
    bool has_lost_receives = false;  // memory of a receive was deregistered
    bool has_short_receives = false;
    bool is_announced = true;  // the event that the send queue is drained was delivered
  };

  void play(uint64_t seed, bool by_memory);

  // ---- setup
  void begin(bool by_memory);
  void connect();
  void add_mr(End& end) { end.mrs.push_back({&end.e.memory.add(kMrBytes, kAllAccess | IBV_ACCESS_MW_BIND)}); }

  // ---- random events
  void step();
  void post(End& end);
  Request draw_request(End& end, ibv_send_wr& wr, ibv_sge& sge);
  void draw_window_request(End& end, ibv_send_wr& wr);
  void post_receive(End& end, bool is_good);
  void deregister(End& end);
  void transmit(End& end, bool everything);
  void carry(End& from);
  void deliver(End& to, bool in_order);
  void run_timers(End& end);
  void change_state(End& end);
  void settle();
  void destroy(End& end);

  // ---- checks
  void poll(End& end);
  void check(End& end, const Request& request, ibv_wc_status status);
  bool is_explained(End& end, const Request& request, ibv_wc_status status);
  bool may_wait(const End& end) const;
  // Whether packets to `to` have to arrive in order. An end without early packets, repairs and timers treats
  // a reordered packet as lost. As Linux rxe, it sends one NAK for a gap and drops what follows.
  bool keeps_order(const End& to) const {
    return by_memory_ || (!to.e.qp->config().repairs && to.e.qp->attributes().timeout == 0);
  }

  const Mr& any_mr(End& end) { return end.mrs[random_->below(end.mrs.size())]; }
  End& any_end() { return random_->one_in(3) ? *b_ : *a_; }
  bool chance(uint64_t out_of) { return random_->one_in(out_of); }

  std::optional<Random> random_;
  std::optional<End> a_;
  std::optional<End> b_;
  bool by_memory_ = false;
  bool loses_ = false;  // packets
  bool both_post_ = false;
  bool goes_direct_ = false;
  uint32_t incarnation_ = 0;
  // Windows that are bound and invalidated, and the region below them, which stays registered.
  std::deque<std::pair<ibv_mw, ibv_mr>> windows_;
};

void RequesterModel::begin(bool by_memory) {
  by_memory_ = by_memory;
  EndpointOptions options;
  options.send_requests = 8u << random_->below(4);
  options.signal_all = chance(2);
  options.repairs = !chance(4);
  options.congestion = chance(2) ? congestion::Kind::kFixed : congestion::Kind::kBbr;
  a_.emplace(*random_, options);
  options.qpn = 0x22;
  b_.emplace(*random_, options);
  a_->peer = &*b_;
  b_->peer = &*a_;
  const uint8_t timeout = chance(2) ? 0 : 14;
  const auto retries = static_cast<uint8_t>(random_->below(8));
  const auto rnr_retries = static_cast<uint8_t>(chance(2) ? 7 : random_->below(7));
  const auto reads = static_cast<uint8_t>(1 + random_->below(4));
  loses_ = !by_memory && timeout != 0 && chance(2);
  both_post_ = chance(3);
  goes_direct_ = by_memory && chance(3);
  for (End* end : {&*a_, &*b_}) {
    QpAttributes& attributes = end->e.attributes();
    attributes.path_mtu = kMtu;
    attributes.timeout = timeout;
    attributes.retry_count = retries;
    attributes.rnr_retry = rnr_retries;
    attributes.max_rd_atomic = reads;
    attributes.notify_drained = true;
    end->e.routes.route.traits = by_memory ? kMemoryTraits : kSocketTraits;
    if (goes_direct_) end->e.routes.route.direct = end;
    for (int i = 0; i < 6; ++i) add_mr(*end);
  }
  b_->e.attributes().path = path_between(ipv4(2), ipv4(1));
  b_->e.attributes().destination = roce::Qpn(0x11);
  connect();
}

void RequesterModel::connect() {
  const uint32_t first = (0xffff00 + ++incarnation_ * kPsnsApart) & 0xffffff;
  for (End* end : {&*a_, &*b_}) {
    const bool is_a = end == &*a_;
    poll(*end);
    end->e.qp->enter(IBV_QPS_RESET);
    end->posted.clear();  // requests of a QP that is reset have no completions
    end->has_failed = end->is_broken = end->has_lost_receives = end->has_short_receives = false;
    end->is_announced = true;
    end->e.attributes().send_psn = roce::Psn(is_a ? first : first + kPsnsApart / 2);
    end->e.attributes().receive_psn = roce::Psn(is_a ? first + kPsnsApart / 2 : first);
    end->e.bring_up();
  }
}

// ---- random events

Request RequesterModel::draw_request(End& end, ibv_send_wr& wr, ibv_sge& sge) {
  constexpr std::array kOpcodes = {IBV_WR_SEND,
                                   IBV_WR_SEND,
                                   IBV_WR_SEND_WITH_IMM,
                                   IBV_WR_RDMA_WRITE,
                                   IBV_WR_RDMA_WRITE,
                                   IBV_WR_RDMA_WRITE,
                                   IBV_WR_RDMA_WRITE_WITH_IMM,
                                   IBV_WR_RDMA_READ,
                                   IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   IBV_WR_ATOMIC_CMP_AND_SWP};
  Request request;
  request.opcode = wr.opcode = kOpcodes[random_->below(kOpcodes.size())];
  uint32_t length = 0;
  switch (random_->below(8)) {
    case 0:
      break;
    case 1:
      length = static_cast<uint32_t>(random_->below(kMrBytes));
      break;
    case 2:
      length = static_cast<uint32_t>(random_->below(4 * kMtu));
      break;
    default:
      length = static_cast<uint32_t>(1 + random_->below(128));
  }
  const Mr& local = any_mr(end);
  const Mr& remote = any_mr(*end.peer);
  if (request.is_atomic()) {
    request.is_misformed = chance(40);
    length = request.is_misformed ? 4 : 8;
    wr.wr.atomic.remote_addr = remote.buffer->address();
    wr.wr.atomic.rkey = remote.buffer->key();
  } else {
    wr.wr.rdma.remote_addr = remote.buffer->address();
    wr.wr.rdma.rkey = remote.buffer->key();
  }
  sge = local.buffer->sge(0, length);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  const bool is_data = request.is_send() || request.is_write();
  if (is_data && length <= 64 && chance(4)) wr.send_flags |= IBV_SEND_INLINE;
  if (length > 0 && (wr.send_flags & IBV_SEND_INLINE) == 0) request.local = &local;
  if (length > 0 && !request.is_send()) request.remote = &remote;
  return request;
}

// A window is bound by one request, and invalidated by the next local request.
void RequesterModel::draw_window_request(End& end, ibv_send_wr& wr) {
  if (wr.opcode == IBV_WR_LOCAL_INV) {
    wr.invalidate_rkey = end.e.memory.add_window(memory::RegionKind::kWindow2).key;
    return;
  }
  auto& [mw, mr] = windows_.emplace_back();
  mw.rkey = end.e.memory.add_window(memory::RegionKind::kWindow2).key;
  const Buffer& region = *end.mrs[0].buffer;
  mr.lkey = region.key();
  wr.bind_mw = {&mw, ibv_inc_rkey(mw.rkey), {&mr, region.address(), 64, IBV_ACCESS_REMOTE_READ}};
}

void RequesterModel::post(End& end) {
  for (uint64_t count = 1 + random_->below(6); count > 0; --count) {
    ibv_send_wr wr{};
    ibv_sge sge{};
    Request request;
    if (chance(10)) {
      request.opcode = wr.opcode = chance(2) ? IBV_WR_LOCAL_INV : IBV_WR_BIND_MW;
      draw_window_request(end, wr);
    } else {
      request = draw_request(end, wr, sge);
    }
    if (chance(2)) wr.send_flags |= IBV_SEND_SIGNALED;
    if (chance(8)) wr.send_flags |= IBV_SEND_FENCE;
    wr.wr_id = request.wr_id = end.next_id;
    request.is_signaled = end.e.qp->config().signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
    request.local_was_gone = request.local != nullptr && request.local->is_gone;
    request.remote_was_gone = request.remote != nullptr && request.remote->is_gone;
    if (!post_send(*end.e.qp, wr)) break;
    ++end.next_id;
    end.posted.push_back(request);
  }
  if (by_memory_ && chance(2)) {
    (void)end.e.qp->send_at_once(end.e.now);
    carry(end);
  }
}

void RequesterModel::post_receive(End& end, bool is_good) {
  const Mr& mr = any_mr(end);
  const bool is_short = !is_good && chance(10);
  ibv_sge sge = mr.buffer->sge(0, is_short ? 16 : kMrBytes);
  end.has_short_receives |= is_short;
  end.has_lost_receives |= mr.is_gone;
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  (void)post_recv(*end.e.qp, wr);
}

// Keeps the first region registered: windows are bound to it.
void RequesterModel::deregister(End& end) {
  Mr& mr = end.mrs[1 + random_->below(end.mrs.size() - 1)];
  if (mr.is_gone) return;
  mr.is_gone = true;
  end.e.memory.deregister(*mr.buffer);
  end.has_lost_receives = true;
  if (end.mrs.size() < 40) add_mr(end);
}

void RequesterModel::carry(End& from) {
  for (SentPacket& packet : from.e.sink.packets) from.peer->arriving.push_back(std::move(packet));
  from.e.sink.packets.clear();
}

void RequesterModel::transmit(End& end, bool everything) {
  RcQueuePair& qp = *end.e.qp;
  end.e.sink.room = everything || !chance(4) ? -1 : static_cast<int>(random_->below(6));
  const auto budget = static_cast<uint32_t>(everything || chance(2) ? 100000 : 1 + random_->below(8));
  const bool acknowledges = everything || chance(2);
  if (by_memory_ && chance(2)) (void)qp.send_at_once(end.e.now);
  const TransmitResult result = qp.transmit(end.e.now, budget, acknowledges);
  if (result == TransmitResult::kIdle && qp.state() != IBV_QPS_ERR) {
    EXPECT_FALSE(qp.has_urgent()) << "idle, yet something urgent is left";
  }
  end.e.sink.room = -1;
  carry(end);
  poll(end);
}

void RequesterModel::deliver(End& to, bool in_order) {
  if (to.arriving.empty()) return;
  const size_t near = std::min<size_t>(to.arriving.size(), 8);
  const size_t index = in_order || keeps_order(to) || chance(2) ? 0 : random_->below(near);
  SentPacket packet = to.arriving[index];
  // The memory route keeps the order of packets and loses none. Answers may come twice on it, too.
  const bool is_answer = packet.operation() == roce::Operation::kAcknowledge;
  const bool is_again = !in_order && !by_memory_ && chance(20);
  if (!is_again) to.arriving.erase(to.arriving.begin() + static_cast<ptrdiff_t>(index));
  if (is_answer && to.old.size() < 64) to.old.push_back(packet);
  if (loses_ && !in_order && chance(10)) return;
  to.e.receive(packet.headers, packet.payload, packet.count);
  poll(to);
}

void RequesterModel::run_timers(End& end) {
  RcQueuePair& qp = *end.e.qp;
  if (qp.deadline() > end.e.now) return;
  // If a timer runs late, the wait that it begins may be over as well.
  for (int i = 0; i < 2 && qp.deadline() <= end.e.now; ++i) qp.on_timer(end.e.now);
  EXPECT_GT(qp.deadline(), end.e.now) << "a timer that was run wants to be run again at once";
  poll(end);
}

void RequesterModel::change_state(End& end) {
  RcQueuePair& qp = *end.e.qp;
  switch (random_->below(6)) {
    case 0:
      connect();
      if (chance(2)) a_->arriving.clear();
      if (chance(2)) b_->arriving.clear();
      break;
    case 1:
      poll(end);
      qp.enter(IBV_QPS_ERR);
      end.has_failed = end.is_broken = true;
      poll(end);
      break;
    case 2:
      qp.reroute();
      break;
    default:
      if (qp.state() == IBV_QPS_RTS) {
        end.is_announced = false;
        end.e.log.events.clear();
        qp.enter(IBV_QPS_SQD);
      } else if (qp.state() == IBV_QPS_SQD) {
        qp.enter(IBV_QPS_RTS);
      }
  }
}

void RequesterModel::step() {
  End& end = any_end();
  switch (random_->below(40)) {
    case 0:
      if (chance(4)) change_state(end);
      break;
    case 1:
      deregister(end);
      break;
    case 2: {
      // Delivers an earlier answer once more.
      if (end.old.empty()) break;
      const SentPacket packet = end.old[random_->below(end.old.size())];
      end.e.receive(packet.headers, packet.payload);
      poll(end);
      break;
    }
    case 3: {
      // A switch's queue fills up: a CNP arrives.
      roce::Headers headers;
      headers.opcode = roce::kCnpOpcode;
      headers.destination = end.e.qp->config().qpn;
      headers.becn = true;
      end.e.receive(headers, std::array<std::byte, 16>{});
      break;
    }
    case 4:
    case 5: {
      const Duration passes = std::chrono::microseconds(1 << random_->below(18));
      for (End* each : {&*a_, &*b_}) {
        each->e.now += passes;
        run_timers(*each);
      }
      break;
    }
    case 6:
      if (end.e.qp->deadline() == kNever || chance(2)) break;
      a_->e.now = b_->e.now = std::max(end.e.now, end.e.qp->deadline());
      run_timers(*a_);
      run_timers(*b_);
      break;
    case 7:
    case 8:
    case 9:
    case 10:
      post_receive(end, false);
      break;
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
      post(both_post_ ? end : *a_);
      break;
    case 16:
    case 17:
    case 18:
    case 19:
    case 20:
    case 21:
    case 22:
    case 23:
      transmit(end, false);
      break;
    default:
      deliver(chance(2) ? *a_ : *b_, false);
  }
}

// The network delivers everything, and time passes, until nothing is left to send and no timer runs.
void RequesterModel::settle() {
  loses_ = false;
  for (End* end : {&*a_, &*b_}) {
    if (end->e.qp->state() == IBV_QPS_SQD) end->e.qp->enter(IBV_QPS_RTS);
  }
  constexpr int kMaxRounds = 20000;
  for (int round = 0; round < kMaxRounds; ++round) {
    for (End* end : {&*a_, &*b_}) {
      for (int i = 0; i < 4; ++i) post_receive(*end, true);
      transmit(*end, true);
    }
    if (HasFailure()) return;
    if (!a_->arriving.empty() || !b_->arriving.empty()) {
      while (!a_->arriving.empty()) deliver(*a_, true);
      while (!b_->arriving.empty()) deliver(*b_, true);
      continue;
    }
    if (a_->e.qp->has_urgent() || b_->e.qp->has_urgent()) continue;
    const TimePoint next = std::min(a_->e.qp->deadline(), b_->e.qp->deadline());
    if (next == kNever) return;
    a_->e.now = b_->e.now = std::max(a_->e.now, next);
    run_timers(*a_);
    run_timers(*b_);
    // Without a timeout the requester retries forever.
    if (a_->posted.empty() && b_->posted.empty() && round > kMaxRounds / 2) return;
    if (may_wait(*a_) && may_wait(*b_) && round > kMaxRounds / 2) return;
  }
  ADD_FAILURE() << "it goes on without end";
}

// Without a timeout, a request to a peer whose program has ended its QP waits forever.
bool RequesterModel::may_wait(const End& end) const {
  if (end.posted.empty()) return true;
  const ibv_qp_state state = end.peer->e.qp->state();
  const bool peer_answers = state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  return !peer_answers && (end.peer->is_broken || both_post_);
}

void RequesterModel::destroy(End& end) {
  poll(end);
  end.e.qp->enter(IBV_QPS_ERR);
  end.has_failed = true;
  poll(end);
  EXPECT_TRUE(end.e.qp->send_queue().empty());
  EXPECT_TRUE(end.posted.empty()) << end.posted.size() << " requests have not completed";
  EXPECT_EQ(end.e.log.overflows, 0);
}

// ---- checks

void RequesterModel::poll(End& end) {
  std::array<ibv_wc, 16> entries{};
  for (int count = 0; (count = end.e.send_cq->poll(16, entries.data())) > 0;) {
    for (const ibv_wc& wc : std::span(entries).first(static_cast<size_t>(count))) {
      // Unsignaled requests before it have succeeded.
      while (!end.posted.empty() && end.posted.front().wr_id != wc.wr_id) {
        ASSERT_FALSE(end.posted.front().is_signaled)
            << "completion of " << wc.wr_id << " before that of " << end.posted.front().wr_id;
        check(end, end.posted.front(), IBV_WC_SUCCESS);
        end.posted.pop_front();
      }
      ASSERT_FALSE(end.posted.empty()) << "a completion of what was never posted: " << wc.wr_id;
      check(end, end.posted.front(), wc.status);
      end.posted.pop_front();
    }
  }
  // The ring tells how many unsignaled requests have completed.
  const uint32_t waiting = end.e.qp->send_queue().waiting();
  ASSERT_LE(waiting, end.posted.size()) << "more are in the ring than were posted";
  while (end.posted.size() > waiting) {
    ASSERT_FALSE(end.posted.front().is_signaled);
    check(end, end.posted.front(), IBV_WC_SUCCESS);
    end.posted.pop_front();
  }
  while (end.e.recv_cq->poll(16, entries.data()) > 0) {
  }
}

void RequesterModel::check(End& end, const Request& request, ibv_wc_status status) {
  EXPECT_TRUE(is_explained(end, request, status))
      << "request " << request.wr_id << ", opcode " << request.opcode << ", status " << status;
  if (status != IBV_WC_SUCCESS) end.has_failed = true;
}

bool RequesterModel::is_explained(End& end, const Request& request, ibv_wc_status status) {
  const QpAttributes& attributes = end.e.attributes();
  const bool local_gone = request.local != nullptr && request.local->is_gone;
  const bool remote_gone = request.remote != nullptr && request.remote->is_gone;
  // A request of the peer may have ended the QP as well.
  if (end.has_failed) return status == IBV_WC_WR_FLUSH_ERR;
  if (status == IBV_WC_WR_FLUSH_ERR) return both_post_ && end.e.qp->state() == IBV_QPS_ERR;
  switch (status) {
    case IBV_WC_SUCCESS:
      return !request.local_was_gone && !request.remote_was_gone && !request.is_misformed;
    case IBV_WC_LOC_PROT_ERR:
      return local_gone;
    case IBV_WC_REM_ACCESS_ERR:
      return remote_gone;
    case IBV_WC_LOC_LEN_ERR:
      return request.is_misformed;
    case IBV_WC_REM_INV_REQ_ERR:
      return request.is_send() && end.peer->has_short_receives;
    case IBV_WC_REM_OP_ERR:
      return request.is_send() && end.peer->has_lost_receives;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return request.takes_receive() && attributes.rnr_retry != 7;
    case IBV_WC_RETRY_EXC_ERR:
      // Without a timeout, only if the peer has refused a later request and the answers to this one are lost.
      return request.opcode != IBV_WR_LOCAL_INV && request.opcode != IBV_WR_BIND_MW &&
             (attributes.timeout != 0 || end.peer->e.qp->state() == IBV_QPS_ERR);
    default:
      return false;
  }
}

void RequesterModel::play(uint64_t seed, bool by_memory) {
  random_.emplace(seed);
  begin(by_memory);
  constexpr int kSteps = 600;
  for (int i = 0; i < kSteps && !HasFailure(); ++i) step();
  if (!HasFailure()) settle();
  for (End* end : {&*a_, &*b_}) {
    if (HasFailure()) return;
    EXPECT_TRUE(end->posted.empty() || may_wait(*end))
        << end->posted.size() << " requests of QP " << end->e.qp->config().qpn.value()
        << " wait for what nobody will send, from " << end->posted.front().wr_id << " on; states "
        << end->e.qp->state() << " and " << end->peer->e.qp->state() << ", timeout "
        << int{end->e.attributes().timeout} << ", " << end->e.qp->has_outstanding() << " in flight";
  }
  for (End* end : {&*a_, &*b_}) destroy(*end);
}

TEST_P(RequesterModel, CompletesEachRequestOnceForAReasonOfItsOwn) {
  constexpr uint32_t kSeeds = 1000;
  const auto [first, end] = seeds_of_group(GetParam(), kSeeds);
  for (uint64_t seed = first; seed < end; ++seed) {
    for (const bool by_memory : {false, true}) {
      SCOPED_TRACE(testing::Message() << "VERBENA_SEED=" << seed << (by_memory ? ", memory" : ", wire"));
      play(seed, by_memory);
      windows_.clear();
      if (HasFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RequesterModel, testing::Range(0u, 4u));

}  // namespace
}  // namespace verbena::transport
