// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/net/port.h"
#include "adapter/shm/local_ways.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/route.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// The ports of a shard with a route for each, and the shared-memory routes (LocalWays), which are preferred.
// A full route stops only the QPs that use it. They wait in the route's own list until it has room.
//
// Created and destroyed with the shard. All other calls require the shard's lock.
class Ports final : public transport::Routes {
 public:
  using ReadyList = engine::ReadyList;

  // `ports`: in order of preference. If there are none, packets are lost.
  explicit Ports(net::PortList ports);
  ~Ports() override;

  bool empty() const { return ways_.empty(); }
  // Sets the routes that are preferred to ports; nullptr: none from now on.
  void prefer(LocalWays* local) { local_ = local; }
  // Returns a shared-memory route, else the one of the first port by which packets of the path may leave. For
  // a multicast group the route uses the port, and may also send copies by memory.
  const transport::Route& find(const roce::Path& path, roce::Qpn destination) override;
  const transport::Route& find_known(const roce::Path& path, roce::Qpn destination) override;
  Result<void> check(const roce::Path& path, Duration patience) const override;
  std::string obstacle(const roce::Path& path, roce::Qpn destination) override;
  bool is_coming(const roce::Path& path, roce::Qpn destination) override {
    return ways_.empty() && local_ != nullptr && local_->is_pending(path, destination);
  }

  // ---- receiving

  // Passes the packets that have arrived to `handler`, about `budget` at most from each port. Returns their
  // number.
  uint32_t receive(net::PacketHandler& handler, uint32_t budget);
  // Returns the counters of the port whose packet receive() is passing on. Otherwise those of the first port,
  // which also count packets that come by no port.
  net::PortCounters& counters() { return *counters_; }
  // Tells the ports whether received packets need their traffic class, hop limit and flow label
  // (net::Port::want_ip_details()). Does nothing if the last call said the same.
  void want_ip_details(bool wanted);
  // Calls visit(descriptor) for each port that has a descriptor to wait for packets.
  template <class Visit>
  void for_each_receive_fd(Visit visit) const {
    for (const Way& way : ways_) {
      if (way.port->receive_fd() >= 0) visit(way.port->receive_fd());
    }
  }
  // Returns whether all descriptors of the ports are still their own (base/own_fd.h).
  bool is_whole() const {
    for (const Way& way : ways_) {
      if (!way.port->is_whole()) return false;
    }
    return true;
  }
  // Returns whether a port has no such descriptor, so that it must be polled.
  bool must_be_asked() const { return must_be_asked_; }

  // ---- sending

  // Returns whether the QP's route has no room.
  bool is_full(const transport::QueuePair& qp) const {
    if (!any_full_) return false;
    if (goes_by_memory(qp)) return local_ != nullptr && local_->is_full(qp.route().port);
    return qp.route().port < ways_.size() && ways_[qp.route().port].full;
  }
  protocol::QpWay way(const transport::QueuePair& qp) const {
    if (!goes_by_memory(qp)) return protocol::QpWay::kWire;
    return local_ != nullptr ? local_->way(qp.route().port) : protocol::QpWay::kMemory;
  }
  // Notes that the QP's route has no room.
  void note_full(const transport::QueuePair& qp);
  // Lets the QP wait until its route has room. REQUIRES: is_full(qp), and the QP is not in a list of ready
  // QPs
  void wait(transport::QueuePair& qp);
  // Sends what the ports have staged, and wakes peers that packets were written for. QPs whose route has room
  // again are moved to `ready`.
  void flush(ReadyList& ready);
  // As flush(), but moves no QP: for callers that are in the middle of sending.
  void push();
  // As push(), but only for shared-memory routes.
  void push_memory() {
    if (local_ != nullptr) local_->push();
  }
  bool any_full() const { return any_full_; }
  // Returns whether there are shared-memory routes and no packet has come by them.
  bool memory_is_quiet() const { return local_ != nullptr && local_->is_quiet(); }
  // Returns a descriptor that becomes writable when the full port has room; -1: it has none, or several ports
  // are full.
  int send_fd() const;

 private:
  const transport::Route& find_port(const roce::Path& path) const;
  const net::Port* port_of(const roce::Path& path) const;

  struct alignas(kCacheLine) Way {
    std::unique_ptr<net::Port> port;
    transport::Route route;
    ReadyList waiting;
    bool full = false;
  };

  std::vector<Way> ways_;  // never changes
  LocalWays* local_ = nullptr;
  bool any_full_ = false;
  bool must_be_asked_ = false;
  std::optional<bool> ip_details_;
  net::PortCounters no_counters_;  // where there is no port
  net::PortCounters* counters_ = &no_counters_;
};

}  // namespace verbena::engine
