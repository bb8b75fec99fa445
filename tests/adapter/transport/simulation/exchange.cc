// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/exchange.h"

#include <algorithm>
#include <cstring>

#include "adapter/transport/support/xrc_halves.h"
#include "adapter/transport/uc.h"
#include "base/format.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;

constexpr std::byte kUntouched{0xa5};
constexpr uint64_t kDomain = 9;
constexpr uint32_t kSourceBytes = 1 << 16;
constexpr Duration kTick = microseconds(2);
constexpr Duration kTimeLimit = std::chrono::seconds(300);

void poison(Bytes bytes) {
  std::memset(bytes.data(), static_cast<int>(kUntouched), bytes.size());
}

}  // namespace

ExchangeOptions ExchangeOptions::draw(uint64_t seed, Exchanging what) {
  Random random(seed);
  ExchangeOptions o;
  o.seed = seed;
  o.what = what;
  const auto chance = [&random] {
    return random.one_in(2) ? 0 : static_cast<uint32_t>(random.below(30'000));
  };
  o.conditions.loss = chance();
  o.conditions.duplication = chance();
  o.conditions.reordering = chance();
  o.conditions.corruption = chance();
  o.conditions.busy = chance();
  o.conditions.delay = microseconds(1 + random.below(30));
  o.conditions.jitter = microseconds(random.below(10));
  o.conditions.detour = microseconds(random.below(200));
  o.senders = static_cast<uint32_t>(1 + random.below(5));
  o.queues = static_cast<uint32_t>(1 + random.below(4));
  o.mtu = 256u << random.below(5);
  o.max_message = static_cast<uint32_t>(1 + random.below(20'000));
  o.receives = static_cast<uint32_t>(1 + random.below(32));
  o.limit = random.one_in(2) ? static_cast<uint32_t>(random.below(o.receives) + 1) : 0;
  o.lateness = random.one_in(2) ? static_cast<uint32_t>(random.below(200)) : 0;
  return o;
}

// ---- setup

Exchange::Exchange(const ExchangeOptions& options)
    : options_(options), random_(options.seed ^ 0xe5c4), network_(options.seed), started_(network_.now()) {
  network_.conditions() = options.conditions;
  for (uint8_t i = 0; i < 2; ++i) {
    const uint8_t address[4] = {10, 0, 0, static_cast<uint8_t>(i + 1)};
    hosts_.push_back(
        std::make_unique<Host>(network_, roce::Address::from_ipv4(address), options.seed * 2 + i));
  }
  source_ = &hosts_[0]->memory().add(kSourceBytes + options.max_message, 0);
  source_->fill(options.seed);
  library_ = &hosts_[1]->memory().add(kSourceBytes + options.max_message, IBV_ACCESS_REMOTE_READ);
  library_->fill(options.seed + 1);
  counter_ = &hosts_[1]->memory().add(8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  counter_->word(0) = 0;
  make_queues();
  for (uint32_t i = 0; i < options.senders; ++i) make_sender(i);
}

void Exchange::make_queues() {
  if (options_.what == Exchanging::kUc) return;
  const bool xrc = options_.what == Exchanging::kXrc;
  for (uint32_t i = 0; i < (xrc ? options_.queues : 1); ++i) {
    queues::SharedReceiveQueue::Config config;
    config.requests = options_.receives;
    config.sges = 4;
    config.pd = kTestPd;
    config.listener = &limit_;
    if (xrc) {
      cqs_.push_back(*queues::CompletionQueue::create(1000, &nobody_));
      config.cq = cqs_.back().get();
      config.number = *table_.reserve();
      config.xrc_domain = kDomain;
    }
    shared_.push_back(*queues::SharedReceiveQueue::create(config));
    if (xrc) table_.add(*shared_.back());
    Inbox& inbox = inboxes_.emplace_back();
    inbox.index = i;
    inbox.shared = shared_.back().get();
    inbox.ring = &inbox.shared->ring();
    inbox.cq = config.cq;
  }
}

void Exchange::make_sender(uint32_t index) {
  Sender& s = senders_.emplace_back();
  Host::QpSizes at_sender{.send_requests = 16, .recv_requests = 1, .least_ack_timeout = microseconds(700)};
  Host::QpSizes at_receiver{.send_requests = 1, .recv_requests = 64, .least_ack_timeout = microseconds(700)};
  if (options_.what != Exchanging::kUc && options_.what != Exchanging::kXrc)
    at_receiver.srq = shared_[0].get();
  switch (options_.what) {
    case Exchanging::kUc:
    case Exchanging::kUcShared:
      s.from = &hosts_[0]->add_qp<UcQueuePair>(at_sender);
      s.to = &hosts_[1]->add_qp<UcQueuePair>(at_receiver);
      break;
    case Exchanging::kRcShared:
      s.from = &hosts_[0]->add_qp<RcQueuePair>(at_sender);
      s.to = &hosts_[1]->add_qp<RcQueuePair>(at_receiver);
      break;
    case Exchanging::kXrc:
      at_receiver.srqs = &table_;
      at_receiver.xrc_domain = kDomain;
      s.from = &hosts_[0]->add_qp<XrcInitiator>(at_sender);
      s.to = &hosts_[1]->add_qp<XrcTarget>(at_receiver);
      break;
  }
  if (options_.what == Exchanging::kUc) {
    Inbox& inbox = inboxes_.emplace_back();
    inbox.ring = &s.to->qp->recv_queue();
  }
  if (options_.what != Exchanging::kXrc) {
    Inbox& inbox = options_.what == Exchanging::kUc ? inboxes_.back() : inboxes_.front();
    // Receives of a shared queue complete at the CQ of the QP that takes them.
    if (options_.what == Exchanging::kUc || index == 0) inbox.cq = s.to->recv_cq.get();
  }
  for (Inbox& inbox : inboxes_) {
    if (inbox.buffer != nullptr) continue;
    inbox.buffer =
        &hosts_[1]->memory().add(size_t{options_.receives} * options_.max_message, IBV_ACCESS_LOCAL_WRITE);
    poison(inbox.buffer->bytes());
    inbox.posted.assign(options_.receives, false);
  }
  uint32_t place = 0;
  uint32_t landing = 0;
  for (uint32_t i = 0; i < options_.messages; ++i) s.messages.push_back(draw_message(place, landing));
  s.target = &hosts_[1]->memory().add(place + 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  s.landing = &hosts_[0]->memory().add(landing + 8, IBV_ACCESS_LOCAL_WRITE);
  poison(s.target->bytes());
  poison(s.landing->bytes());
  s.arrived.assign(options_.messages, false);
  s.last_of_queue.assign(std::max<size_t>(1, shared_.size()), -1);
  connect(s);
}

Exchange::Message Exchange::draw_message(uint32_t& place, uint32_t& landing) {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_FETCH_AND_ADD};
  Message m;
  m.opcode = kOpcodes[random_.below(reliable() ? 6 : 4)];
  m.length = static_cast<uint32_t>(random_.one_in(6) ? 0 : random_.below(options_.max_message + 1));
  m.source = static_cast<uint32_t>(random_.below(kSourceBytes));
  m.queue = static_cast<uint32_t>(random_.below(std::max<size_t>(1, shared_.size())));
  if (m.writes()) {
    m.place = place;
    place += m.length;
  } else if (m.opcode == IBV_WR_RDMA_READ || m.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    if (m.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) m.length = 8;
    m.place = landing;
    landing += m.length;
  }
  if (m.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) added_ += 1;
  if (m.takes_receive()) ++expected_;
  return m;
}

void Exchange::connect(Sender& s) {
  const roce::Psn first(static_cast<uint32_t>(0xffffff - random_.below(200)));
  const auto set = [&](SimulatedQp& qp, SimulatedQp& peer, size_t host) {
    QpAttributes& a = qp.qp->attributes();
    a.path.source = hosts_[host]->port().address();
    a.path.destination = hosts_[1 - host]->port().address();
    a.destination = peer.qp->config().qpn;
    a.path_mtu = options_.mtu;
    a.access = kAllAccess;
    a.send_psn = a.receive_psn = first;
    a.max_rd_atomic = 4;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.timeout = options_.timeout;
    a.retry_count = 7;
    a.rnr_retry = 7;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) qp.qp->enter(state);
  };
  set(*s.from, *s.to, 0);
  set(*s.to, *s.from, 1);
}

// ---- posting

void Exchange::post(Sender& s, uint32_t number) {
  const Message& m = s.messages[number];
  ibv_send_wr wr{};
  wr.wr_id = number;
  wr.opcode = m.opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htobe32(number);
  if (options_.what == Exchanging::kXrc) wr.qp_type.xrc.remote_srqn = shared_[m.queue]->number();
  ibv_sge sge = source_->sge(m.source, m.length);
  if (m.writes()) {
    wr.wr.rdma.remote_addr = s.target->address(m.place);
    wr.wr.rdma.rkey = s.target->key();
  } else if (m.opcode == IBV_WR_RDMA_READ) {
    sge = s.landing->sge(m.place, m.length);
    wr.wr.rdma.remote_addr = library_->address(m.source);
    wr.wr.rdma.rkey = library_->key();
  } else if (m.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    sge = s.landing->sge(m.place, m.length);
    wr.wr.atomic.remote_addr = counter_->address();
    wr.wr.atomic.rkey = counter_->key();
    wr.wr.atomic.compare_add = 1;
  }
  wr.sg_list = &sge;
  wr.num_sge = 1;
  post_send(*s.from->qp, wr);
}

bool Exchange::post_sends() {
  bool any = false;
  for (Sender& s : senders_) {
    for (uint64_t burst = random_.below(4); burst > 0 && s.posted < options_.messages; --burst) {
      if (s.posted - s.completed >= 8) break;
      post(s, s.posted++);
      any = true;
    }
  }
  return any;
}

void Exchange::post_receives(Inbox& inbox) {
  if (inbox.idle_until != kNever) {
    if (network_.now() < inbox.idle_until) return;
    inbox.idle_until = kNever;
  } else if (random_.below(1000) < options_.lateness) {
    inbox.idle_until = network_.now() + microseconds(random_.below(500));
    return;
  }
  const bool by_limit = options_.limit != 0 && inbox.shared != nullptr;
  if (by_limit && inbox.shared->limit() != 0) {
    // The queue would have raised its limit event if it had fewer.
    if (inbox.ring->posted() - inbox.ring->consumed() < inbox.shared->limit())
      complain("a shared queue is below its limit and has not said so");
    return;
  }
  for (uint32_t i = 0; i < options_.receives; ++i) {
    if (inbox.posted[i]) continue;
    ibv_sge sge = inbox.buffer->sge(size_t{i} * options_.max_message, options_.max_message);
    ibv_recv_wr wr{};
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (!post_recv(*inbox.ring, wr)) break;
    inbox.posted[i] = true;
  }
  // Receives that are held for unfinished messages are not in the queue, so the limit is at most what is
  // left.
  if (by_limit) inbox.shared->arm(std::min(options_.limit, inbox.ring->posted() - inbox.ring->consumed()));
}

// ---- completions

template <class Take>
void Exchange::take_all(queues::CompletionQueue& cq, Take take) {
  ibv_wc wc[32];
  for (int n; (n = cq.poll(32, wc)) > 0;) {
    for (int i = 0; i < n; ++i) take(wc[i]);
  }
}

// Polls receives first: a message complete at the sender must have been received.
void Exchange::poll() {
  const bool by_queue = options_.what == Exchanging::kXrc || options_.what == Exchanging::kUc;
  for (Inbox& inbox : inboxes_) {
    if (by_queue) take_all(*inbox.cq, [&](const ibv_wc& wc) { on_received(inbox, wc); });
  }
  for (Sender& s : senders_) {
    if (!by_queue) take_all(*s.to->recv_cq, [&](const ibv_wc& wc) { on_received(inboxes_.front(), wc); });
  }
  for (Sender& s : senders_) take_all(*s.from->send_cq, [&](const ibv_wc& wc) { on_sent(s, wc); });
}

void Exchange::on_sent(Sender& s, const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS)
    return complain(verbena::format("request {} failed: {}", wc.wr_id, int{wc.status}));
  if (wc.wr_id != s.completed)
    return complain(verbena::format("request {} complete, {} was next", wc.wr_id, s.completed));
  const Message& m = s.messages[s.completed++];
  if (!reliable()) return;
  if (m.takes_receive() && !s.arrived[wc.wr_id])
    return complain(verbena::format("message {} complete, not received", wc.wr_id));
  if (!is_done(s, m)) complain(verbena::format("message {} complete, not done", wc.wr_id));
}

bool Exchange::is_done(const Sender& s, const Message& m) const {
  const auto same = [&](Buffer& to, const Buffer* from) {
    return std::ranges::equal(to.bytes(m.place, m.length),
                              const_cast<Buffer*>(from)->bytes(m.source, m.length));
  };
  if (m.writes()) return same(*s.target, source_);
  if (m.opcode == IBV_WR_RDMA_READ) return same(*s.landing, library_);
  return true;
}

void Exchange::on_received(Inbox& inbox, const ibv_wc& wc) {
  if (wc.wr_id >= inbox.posted.size() || !inbox.posted[wc.wr_id])
    return complain(verbena::format("receive {} complete, which is not posted", wc.wr_id));
  inbox.posted[wc.wr_id] = false;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) return;  // at the end
  const auto s = std::ranges::find_if(
      senders_, [&](const Sender& sender) { return sender.to->qp->config().qpn.value() == wc.qp_num; });
  const uint32_t number = be32toh(wc.imm_data);
  if (wc.status != IBV_WC_SUCCESS || s == senders_.end() || number >= s->posted)
    return complain(verbena::format("receive {}: status {}, message {}", wc.wr_id, int{wc.status}, number));
  const Message& m = s->messages[number];
  const size_t queue = options_.what == Exchanging::kXrc ? inbox.index : 0;
  const auto expected = m.writes() ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (!m.takes_receive() || wc.opcode != expected || wc.byte_len != m.length || s->arrived[number])
    return complain(verbena::format("message {} received wrongly", number));
  if (options_.what == Exchanging::kXrc && m.queue != queue) complain("a message came to another queue");
  if (s->last_of_queue[queue] >= number) complain("a message overtook another");
  s->last_of_queue[queue] = number;
  s->arrived[number] = true;
  ++arrived_;
  const Bytes place = inbox.buffer->bytes(wc.wr_id * options_.max_message, options_.max_message);
  const uint32_t bytes = m.writes() ? 0 : m.length;
  if (!std::ranges::equal(place.first(bytes), source_->bytes(m.source, bytes)))
    complain(verbena::format("message {} is not what was sent", number));
  // After a dropped unreliable message, the receive that waits for the next one may contain some of its
  // bytes. A reliable one leaves the rest of the buffer untouched.
  if (reliable() && std::ranges::any_of(place.subspan(bytes), [](std::byte b) { return b != kUntouched; }))
    complain(verbena::format("message {} wrote beyond its end", number));
  if (m.writes() && !is_done(*s, m))
    complain(verbena::format("message {} is not where it was written", number));
  poison(place);
}

// ---- the run

bool Exchange::step() {
  const TimePoint now = network_.now();
  for (Inbox& inbox : inboxes_) post_receives(inbox);
  bool more = post_sends();
  for (const auto& host : hosts_) more |= host->progress(now);
  poll();
  for (const auto& host : hosts_) {
    if (host->complaint() != nullptr) complain(host->complaint());
  }
  TimePoint next = more ? now : network_.next_arrival();
  for (const auto& host : hosts_) next = std::min(next, host->deadline());
  for (const Inbox& inbox : inboxes_) next = std::min(next, inbox.idle_until);
  if (!all_complete()) next = std::min(next, now + microseconds(50));
  if (next == kNever) return false;
  network_.advance_to(std::max(next, now + kTick));
  return true;
}

bool Exchange::all_complete() const {
  return std::ranges::all_of(senders_, [&](const Sender& s) { return s.completed == options_.messages; });
}

bool Exchange::run() {
  while (complaint_.empty()) {
    const bool goes_on = step();
    if (!goes_on) {
      if (!all_complete()) complain("everything stands still");
      break;
    }
    if (all_complete() && network_.next_arrival() == kNever &&
        std::ranges::none_of(senders_, [](const Sender& s) { return s.to->qp->has_acknowledgement(); })) {
      break;
    }
    if (network_.now() - started_ > kTimeLimit) complain("no end in sight");
  }
  if (complaint_.empty()) check_end();
  return complaint_.empty();
}

void Exchange::check_end() {
  if (reliable() && arrived_ != expected_) complain("a message was lost");
  if (reliable() && counter_->word(0) != added_) complain("the counter is wrong");
  for (const Sender& s : senders_) {
    if (s.from->qp->state() != IBV_QPS_RTS || s.to->qp->state() != IBV_QPS_RTS) complain("a QP is in error");
    check_writes(s);
  }
  check_receives();
}

// Any packet of an unreliable WRITE may be missing: each byte is the message's own or untouched.
void Exchange::check_writes(const Sender& s) {
  for (const Message& m : s.messages) {
    if (!m.writes()) continue;
    const Bytes place = s.target->bytes(m.place, m.length);
    const Bytes sent = source_->bytes(m.source, m.length);
    for (size_t i = 0; i < m.length; ++i) {
      if (place[i] == sent[i] || (!reliable() && place[i] == kUntouched)) continue;
      return complain("memory has what was not written to it");
    }
  }
}

// Each posted receive has completed, still waits in its queue, or is flushed when its QP ends.
void Exchange::check_receives() {
  for (const Sender& s : senders_) s.to->qp->enter(IBV_QPS_ERR);
  poll();
  for (const Inbox& inbox : inboxes_) {
    const auto unaccounted = static_cast<uint32_t>(std::ranges::count(inbox.posted, true));
    if (unaccounted != inbox.ring->posted() - inbox.ring->consumed()) complain("a receive request is lost");
  }
}

}  // namespace verbena::transport
