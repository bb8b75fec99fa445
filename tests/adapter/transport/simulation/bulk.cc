// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/bulk.h"

#include <algorithm>
#include <numeric>

#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/uc.h"
#include "adapter/transport/ud.h"

namespace verbena::transport {
namespace {

// The bytes of a packet around its payload: BTH, ICRC, UDP, IPv4, Ethernet.
constexpr uint32_t kAroundPayload = roce::kBthBytes + roce::kIcrcBytes + 8 + 20 + 14;
constexpr uint32_t kEchoBytes = 64;
constexpr uint32_t kQkey = 0x1234;
// The interval of TCP's acknowledgements: receive offload joins packets, and one acknowledgement answers
// them.
constexpr Duration kTcpLump = std::chrono::microseconds(100);

ibv_recv_wr receive_of(ibv_sge& place) {
  ibv_recv_wr wr{};
  wr.sg_list = &place;
  wr.num_sge = 1;
  return wr;
}

SimulatedQp& add_qp(Host& host, roce::Service service, const Host::QpSizes& sizes) {
  switch (service) {
    case roce::Service::kUc:
      return host.add_qp<UcQueuePair>(sizes);
    case roce::Service::kUd:
      return host.add_qp<UdQueuePair>(sizes);
    default:
      return host.add_qp<RcQueuePair>(sizes);
  }
}

}  // namespace

double fairness_of(const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double squares = std::inner_product(shares.begin(), shares.end(), shares.begin(), 0.0);
  return sum * sum / (static_cast<double>(shares.size()) * squares);
}

Bulk::Bulk(const BulkOptions& options) : options_(options), network_(options.seed) {
  const auto add_host = [&](uint64_t number) {
    auto host =
        std::make_unique<Host>(network_, ipv4(static_cast<uint8_t>(number + 1)), options.seed * 2 + number);
    host->port().set_link(options.link, options.seed * 2 + number);
    return host;
  };
  for (uint32_t i = 0; i < options.senders; ++i) {
    senders_.push_back(add_host(i));
    if (i > 0) senders_[i]->port().share_link(senders_[0]->port());
  }
  receiver_ = add_host(options.senders);
  target_ = &receiver_->memory().add(options.message + kGrhBytes);
  for (const auto& sender : senders_) {
    Buffer& source = sender->memory().add(options.message);
    for (uint32_t i = 0; i < options.qp_pairs; ++i) pairs_.push_back(connect(*sender, source));
  }
  if (options.echo) echo_ = connect(*senders_[0], senders_[0]->memory().add(kEchoBytes));
  begins_ = network_.now();
  if (options.tcp_since) {
    tcp_ = std::make_unique<TcpFlow>(senders_[0]->port().link(), options.link.delay, kTcpLump);
    begins_ += *options.tcp_since;
    run(*options.tcp_since);
  }
  counted_at_ = network_.now();
}

Bulk::Pair Bulk::connect(Host& from, Buffer& source) {
  const Host::QpSizes sizes{.send_requests = options_.depth,
                            .recv_requests = 4 * options_.depth,
                            .least_ack_timeout = std::chrono::milliseconds(16),
                            .congestion = options_.congestion};
  Host* const hosts[2] = {&from, receiver_.get()};
  SimulatedQp* ends[2];
  for (size_t i = 0; i < 2; ++i) ends[i] = &add_qp(*hosts[i], options_.service, sizes);
  for (size_t i = 0; i < 2; ++i) {
    QpAttributes& attributes = ends[i]->qp->attributes();
    attributes.path = path_between(hosts[i]->port().address(), hosts[1 - i]->port().address());
    attributes.path.traffic_class = options_.traffic_class;
    attributes.destination = ends[1 - i]->qp->config().qpn;
    attributes.path_mtu = options_.mtu;
    attributes.qkey = kQkey;
    attributes.access = kAllAccess;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 128;  // as perftest has
    attributes.min_rnr_timer = 1;
    attributes.timeout = 14;
    attributes.retry_count = attributes.rnr_retry = 7;
    attributes.send_psn = attributes.receive_psn = roce::Psn(0xfffff0);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) ends[i]->qp->enter(state);
  }
  return {ends[0], ends[1], &source, ends[0]->qp->attributes().path};
}

// Keeps `pair`'s requests and receives posted. False if a request failed.
bool Bulk::feed(Pair& pair) {
  ibv_wc wc;
  while (pair.from->send_cq->poll(1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) return false;
    ++pair.completed;
  }
  while (pair.to->recv_cq->poll(1, &wc) == 1) continue;
  if (options_.opcode == IBV_WR_SEND) {
    ibv_sge place = target_->sge();
    const ibv_recv_wr receive = receive_of(place);
    while (post_recv(*pair.to->qp, receive)) continue;
  }
  ibv_sge sge = pair.source->sge();
  ibv_send_wr wr{};
  wr.opcode = options_.opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  const bool is_datagram = options_.service == roce::Service::kUd;
  if (is_datagram) {
    wr.wr.ud.remote_qpn = pair.to->qp->config().qpn.value();
    wr.wr.ud.remote_qkey = kQkey;
  } else {
    wr.wr.rdma.remote_addr = target_->address();
    wr.wr.rdma.rkey = target_->key();
  }
  for (; pair.posted - pair.completed < options_.depth; ++pair.posted) {
    if (!post_send(*pair.from->qp, wr, is_datagram ? &pair.path : nullptr)) break;
  }
  return true;
}

// Sends `what`, and posts a receive for the answer. False if an earlier send failed.
bool Bulk::throw_to(SimulatedQp& from, Buffer& what) {
  ibv_wc wc;
  while (from.send_cq->poll(1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) return false;
  }
  ibv_sge sge = what.sge();
  sge.length = kEchoBytes;
  post_recv(*from.qp, receive_of(sge));
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  return post_send(*from.qp, wr);
}

// Sends the 64 bytes of the echo there and back. False on error.
bool Bulk::bounce(TimePoint now) {
  ibv_wc wc;
  if (thrown_at_ == kNever) {
    ibv_sge place = target_->sge();
    post_recv(*echo_->to->qp, receive_of(place));
    thrown_at_ = now;
    return throw_to(*echo_->from, *echo_->source);
  }
  if (echo_->to->recv_cq->poll(1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS || !throw_to(*echo_->to, *target_)) return false;
  }
  if (echo_->from->recv_cq->poll(1, &wc) == 0) return true;
  if (wc.status != IBV_WC_SUCCESS) return false;
  echoes_.push_back(now - thrown_at_);
  thrown_at_ = now;
  return throw_to(*echo_->from, *echo_->source);
}

bool Bulk::run(Duration time) {
  std::vector<Host*> hosts{receiver_.get()};
  for (const auto& sender : senders_) hosts.push_back(sender.get());
  const TimePoint end = network_.now() + time;
  while (network_.now() < end) {
    const TimePoint now = network_.now();
    bool more = false;
    for (Host* host : hosts) more |= host->progress(now);
    // The program sees completions of a host at once, and posts more.
    const uint64_t before = posted();
    if (now >= begins_ && !std::ranges::all_of(pairs_, [this](Pair& pair) { return feed(pair); }))
      return false;
    more |= posted() != before;
    if (echo_ && !bounce(now)) return false;
    if (tcp_) tcp_->run(now);
    TimePoint next = more ? now : network_.next_arrival();
    for (const Host* host : hosts) next = std::min(next, host->deadline());
    if (tcp_) next = std::min(next, tcp_->deadline());
    network_.advance_to(std::min(end, std::max(next, now + options_.tick)));
  }
  return true;
}

uint64_t Bulk::posted() const {
  return std::accumulate(pairs_.begin(), pairs_.end(), uint64_t{0},
                         [](uint64_t sum, const Pair& pair) { return sum + pair.posted; });
}

uint64_t Bulk::moved(const Pair& pair) const {
  if (options_.service == roce::Service::kRc) return pair.completed * options_.message;
  return pair.to->counters[kReceivedBytes].load();
}

std::vector<double> Bulk::goodput() {
  const double seconds = std::chrono::duration<double>(network_.now() - counted_at_).count();
  std::vector<double> rates;
  for (Pair& pair : pairs_) {
    const uint64_t before = std::exchange(pair.counted, moved(pair));
    rates.push_back(static_cast<double>(pair.counted - before) / seconds);
  }
  counted_at_ = network_.now();
  return rates;
}

double Bulk::ideal() const {
  const uint32_t whole = options_.mtu + kAroundPayload + options_.link.overhead_bytes;
  const double arrives = 1.0 - (options_.link.loss + options_.link.corruption) / 1e6;
  return static_cast<double>(options_.link.bytes_per_second) * options_.mtu / whole * arrives;
}

}  // namespace verbena::transport
