// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/world.h"

#include <algorithm>

#include "adapter/memory/region.h"
#include "base/format.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

roce::Address address_of(bool ipv6, uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  if (!ipv6) return roce::Address::from_ipv4(bytes);
  roce::Address address;
  address.bytes = {0xfd, 0x10};
  address.bytes[15] = last;
  return address;
}

template <class T, size_t N>
T one_of(Random& random, const T (&choices)[N]) {
  return choices[random.below(N)];
}

net::Conditions draw_conditions(Random& random) {
  net::Conditions c;
  // Most probabilities are zero, some are small, few are larger.
  const auto chance = [&random] {
    static constexpr uint32_t kMax[] = {0, 0, 300, 3'000, 20'000};
    const uint32_t most = one_of(random, kMax);
    return most == 0 ? 0 : static_cast<uint32_t>(random.below(most));
  };
  c.loss = chance();
  c.duplication = chance();
  c.reordering = chance();
  c.corruption = chance();
  c.busy = chance();
  c.delay = microseconds(1 + random.below(50));
  c.jitter = microseconds(random.below(10));
  c.detour = microseconds(random.below(500));
  if (random.one_in(3)) {
    c.bytes_per_second = 100'000'000 + random.below(10'000'000'000);
    c.queue_bytes = static_cast<uint32_t>(20'000 + random.below(500'000));
  }
  return c;
}

}  // namespace

WorldOptions WorldOptions::draw(uint64_t seed, uint32_t packets) {
  Random random(seed);
  WorldOptions o;
  o.seed = seed;
  o.conditions = draw_conditions(random);
  o.ipv6 = random.one_in(4);
  o.qp_pairs = static_cast<uint32_t>(1 + random.below(4));
  o.both_ways = !random.one_in(4);
  o.start_near_wrap = random.one_in(2);
  o.tick = Duration(200 + random.below(5000));

  o.flow.mtu = one_of(random, {256u, 512u, 1024u, 2048u, 4096u});
  o.flow.max_message = one_of(random, {64u, 5'000u, 5'000u, 20'000u, 100'000u, 1u << 20});
  o.flow.packets = packets / (o.qp_pairs * (o.both_ways ? 2 : 1));
  o.flow.lateness = one_of(random, {0u, 0u, 10'000u, 100'000u, 500'000u});
  o.flow.all_signaled = random.one_in(3);

  o.sizes.send_requests = 1u << random.below(8);
  o.sizes.recv_requests = 1u << random.below(8);
  o.sizes.least_ack_timeout = one_of(random, {microseconds(700), microseconds(2000), microseconds(16000)});

  QpAttributes& a = o.attributes;
  a.path_mtu = o.flow.mtu;
  a.access = kAllAccess | memory::kFlushGlobal;
  a.max_rd_atomic = static_cast<uint8_t>(1 + random.below(16));
  a.max_dest_rd_atomic = static_cast<uint8_t>(a.max_rd_atomic + random.below(3));
  a.min_rnr_timer = static_cast<uint8_t>(1 + random.below(14));
  a.timeout = static_cast<uint8_t>(1 + random.below(14));
  a.retry_count = 7;
  a.rnr_retry = 7;
  return o;
}

World::World(const WorldOptions& options)
    : options_(options), random_(options.seed ^ 0x5eed), network_(options.seed) {
  started_ = network_.now();
  network_.conditions() = options.conditions;
  for (uint8_t i = 0; i < 2; ++i) {
    const roce::Address address = address_of(options.ipv6, static_cast<uint8_t>(i + 1));
    hosts_.push_back(std::make_unique<Host>(network_, address, options.seed * 2 + i));
    if (options.link) hosts_.back()->port().set_link(*options.link, options.seed * 2 + i);
    shared_counters_[i] = &hosts_[i]->memory().add(8);
  }
  for (uint32_t pair = 0; pair < options.qp_pairs; ++pair) {
    SimulatedQp& a = hosts_[0]->add_qp<RcQueuePair>(options.sizes);
    SimulatedQp& b = hosts_[1]->add_qp<RcQueuePair>(options.sizes);
    connect(a, b);
    add_flow(0, a, 1, b, pair * 2);
    if (options.both_ways) add_flow(1, b, 0, a, pair * 2 + 1);
  }
}

void World::connect(SimulatedQp& a, SimulatedQp& b) {
  const auto first_psn = [this] {
    return roce::Psn(
        static_cast<uint32_t>(options_.start_near_wrap ? 0xffffff - random_.below(2000) : random_.next()));
  };
  const roce::Psn a_psn = first_psn();
  const roce::Psn b_psn = first_psn();
  const auto set = [this](SimulatedQp& s, SimulatedQp& peer, size_t host, roce::Psn send, roce::Psn receive) {
    QpAttributes& attributes = s.qp->attributes();
    attributes = options_.attributes;
    attributes.path.source = hosts_[host]->port().address();
    attributes.path.destination = hosts_[1 - host]->port().address();
    attributes.destination = peer.qp->config().qpn;
    attributes.send_psn = send;
    attributes.receive_psn = receive;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) s.qp->enter(state);
  };
  set(a, b, 0, a_psn, b_psn);
  set(b, a, 1, b_psn, a_psn);
}

void World::add_flow(size_t from, SimulatedQp& a, size_t to, SimulatedQp& b, uint32_t index) {
  FlowOptions options = options_.flow;
  if (index != 0) options.fault = Fault::kNone;
  flows_.push_back(std::make_unique<Flow>(*hosts_[from], a, *hosts_[to], b, *shared_counters_[to], options,
                                          options_.seed + 1000 * (index + 1)));
  const bool shares_fate = options_.flow.fault != Fault::kNone && index <= 1;
  if (shares_fate || options_.isolate_at != Duration::max()) flows_.back()->expect_end();
}

bool World::all_finished() const {
  return std::all_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->finished(); });
}

bool World::check() {
  for (const auto& flow : flows_) {
    if (complaint_.empty()) complaint_ = flow->complaint();
  }
  for (const auto& host : hosts_) {
    if (complaint_.empty() && host->complaint() != nullptr) complaint_ = host->complaint();
  }
  if (complaint_.empty() && elapsed() > options_.time_limit) {
    complaint_ = "no end in sight";
    for (const auto& flow : flows_) complaint_ += "; " + flow->progress_report();
  }
  return complaint_.empty();
}

bool World::run() {
  while (!all_finished()) {
    const TimePoint now = network_.now();
    if (now - started_ >= options_.isolate_at) hosts_[1]->port().isolate(true);
    bool more = false;
    for (const auto& flow : flows_) more |= flow->progress(now);
    for (const auto& host : hosts_) more |= host->progress(now);
    if (!check()) return false;

    TimePoint next = more ? now : network_.next_arrival();
    for (const auto& host : hosts_) next = std::min(next, host->deadline());
    for (const auto& flow : flows_) next = std::min(next, flow->wake_at());
    if (options_.isolate_at > now - started_ && options_.isolate_at != Duration::max()) {
      next = std::min(next, started_ + options_.isolate_at);
    }
    if (next == kNever) {
      // The last round may have brought completions, and nothing else.
      bool found = false;
      for (const auto& flow : flows_) found |= flow->progress(now);
      for (const auto& host : hosts_) {
        for (const auto& s : host->qps()) found |= s->qp->has_urgent() || s->qp->has_acknowledgement();
      }
      if (!check()) return false;
      if (!found && !all_finished()) {
        complaint_ = "everything stands still";
        for (const auto& flow : flows_) complaint_ += "; " + flow->progress_report();
        return false;
      }
      next = now;
    }
    network_.advance_to(std::max(next, now + options_.tick));
  }
  check_end();
  return complaint_.empty();
}

// Checks the conditions that must hold at the end.
void World::check_end() {
  uint64_t added[2] = {};
  bool all_succeeded = true;
  for (size_t i = 0; i < flows_.size(); ++i) {
    all_succeeded &= !flows_[i]->failed();
    const size_t to = options_.both_ways && i % 2 == 1 ? 0 : 1;
    added[to] += flows_[i]->added_to_shared_counter();
  }
  if (!all_succeeded) return;
  for (size_t i = 0; i < 2; ++i) {
    if (shared_counters_[i]->word(0) != added[i])
      complaint_ = "the sum of what was fetched and added is wrong";
    for (const auto& s : hosts_[i]->qps()) {
      if (s->qp->state() != IBV_QPS_RTS) complaint_ = "a QP is in error, though everything succeeded";
      if (s->qp->has_outstanding()) complaint_ = "something is outstanding, though everything is complete";
      if (s->overflowed) complaint_ = "a completion queue overflowed";
    }
  }
}

}  // namespace verbena::transport
