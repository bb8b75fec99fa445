// SPDX-License-Identifier: Apache-2.0
#include "transport/simulation/bulk.h"

#include <algorithm>

#include "transport/support/endpoint.h"

namespace verbena::transport {
namespace {

// BTH and ICRC, and what is around them: UDP, IPv4, Ethernet.
constexpr uint32_t kAroundPayload = roce::kBthBytes + roce::kIcrcBytes + 8 + 20 + 14;

}  // namespace

Bulk::Bulk(const BulkOptions& options) : options_(options), network_(options.seed) {
  for (uint8_t i = 0; i < 2; ++i) {
    hosts_.push_back(
        std::make_unique<Host>(network_, ipv4(static_cast<uint8_t>(i + 1)), options.seed * 2 + i));
    hosts_.back()->port().set_link(options.link, options.seed * 2 + i);
  }
  source_ = &hosts_[0]->memory().add(options.message);
  target_ = &hosts_[1]->memory().add(options.message);
  for (uint32_t i = 0; i < options.qp_pairs; ++i) add_pair();
  counted_at_ = network_.now();
}

void Bulk::add_pair() {
  const Host::QpSizes sizes{.send_requests = options_.depth,
                            .recv_requests = 4 * options_.depth,
                            .least_ack_timeout = std::chrono::milliseconds(16),
                            .congestion = options_.congestion};
  SimulatedQp* ends[2];
  for (size_t i = 0; i < 2; ++i) ends[i] = &hosts_[i]->add_qp<RcQueuePair>(sizes);
  for (size_t i = 0; i < 2; ++i) {
    QpAttributes& attributes = ends[i]->qp->attributes();
    attributes.path = path_between(hosts_[i]->port().address(), hosts_[1 - i]->port().address());
    attributes.path.traffic_class = options_.traffic_class;
    attributes.destination = ends[1 - i]->qp->config().qpn;
    attributes.path_mtu = options_.mtu;
    attributes.access = kAllAccess;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 16;
    attributes.min_rnr_timer = 1;
    attributes.timeout = 14;
    attributes.retry_count = attributes.rnr_retry = 7;
    attributes.send_psn = attributes.receive_psn = roce::Psn(0xfffff0);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) ends[i]->qp->enter(state);
  }
  completed_.push_back(0);
  counted_.push_back(0);
  posted_.push_back(0);
}

// Keeps so many requests posted, and receives for them. False: one failed.
bool Bulk::feed(size_t index) {
  SimulatedQp& from = *hosts_[0]->qps()[index];
  SimulatedQp& to = *hosts_[1]->qps()[index];
  ibv_wc wc;
  while (from.send_cq->poll(1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) return false;
    ++completed_[index];
  }
  while (to.recv_cq->poll(1, &wc) == 1) continue;
  if (options_.opcode == IBV_WR_SEND) {
    ibv_sge place = target_->sge();
    ibv_recv_wr receive{};
    receive.sg_list = &place;
    receive.num_sge = 1;
    while (post_recv(*to.qp, receive)) continue;
  }
  ibv_sge sge = source_->sge();
  ibv_send_wr wr{};
  wr.opcode = options_.opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = target_->address();
  wr.wr.rdma.rkey = target_->key();
  for (; posted_[index] - completed_[index] < options_.depth; ++posted_[index]) {
    if (!post_send(*from.qp, wr)) break;
  }
  return true;
}

bool Bulk::run(Duration time) {
  const TimePoint end = network_.now() + time;
  while (network_.now() < end) {
    const TimePoint now = network_.now();
    for (size_t i = 0; i < completed_.size(); ++i) {
      if (!feed(i)) return false;
    }
    bool more = false;
    for (const auto& host : hosts_) more |= host->progress(now);
    TimePoint next = more ? now : network_.next_arrival();
    for (const auto& host : hosts_) next = std::min(next, host->deadline());
    network_.advance_to(std::min(end, std::max(next, now + options_.tick)));
  }
  return true;
}

std::vector<double> Bulk::goodput() {
  const double seconds = std::chrono::duration<double>(network_.now() - counted_at_).count();
  std::vector<double> rates;
  for (size_t i = 0; i < completed_.size(); ++i) {
    rates.push_back(static_cast<double>(completed_[i] - counted_[i]) * options_.message / seconds);
  }
  counted_ = completed_;
  counted_at_ = network_.now();
  return rates;
}

double Bulk::ideal() const {
  const uint32_t whole = options_.mtu + kAroundPayload + options_.link.overhead_bytes;
  const double arrives = 1.0 - (options_.link.loss + options_.link.corruption) / 1e6;
  return static_cast<double>(options_.link.bytes_per_second) * options_.mtu / whole * arrives;
}

}  // namespace verbena::transport
