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

// The ports of a shard, and a route by each; and in front of them the ways by memory, if it has some. A way
// that is full stops only the QPs that go by it: they wait in a list of its own until it has room.
//
// Made and ended with the shard; all else with the shard's lock held.
class Ports final : public transport::Routes {
 public:
  using ReadyList = engine::ReadyList;

  // In order of preference. Without any, packets are lost.
  explicit Ports(net::PortList ports);
  ~Ports() override;

  bool empty() const { return ways_.empty(); }
  // What is preferred to ports; nullptr: nothing (any more).
  void prefer(LocalWays* local) { local_ = local; }
  // A way by memory, or the first port that packets of the path may leave by; to a multicast group, both.
  const transport::Route& find(const roce::Path& path, roce::Qpn destination) override;
  const transport::Route& find_known(const roce::Path& path, roce::Qpn destination) override;
  Result<void> check(const roce::Path& path, Duration patience) const override;
  std::string obstacle(const roce::Path& path, roce::Qpn destination) override;
  bool is_coming(const roce::Path& path, roce::Qpn destination) override {
    return ways_.empty() && local_ != nullptr && local_->is_pending(path, destination);
  }

  // ---- receiving

  // Takes what has arrived, at most about `budget` packets from each.
  uint32_t receive(net::PacketHandler& handler, uint32_t budget);
  // While receive() hands on a packet: of the port that it came in by. Else of the first, which what comes in
  // by no port counts with.
  net::PortCounters& counters() { return *counters_; }
  // As long as nothing is said, what was wanted of the ports before.
  void want_ip_details(bool wanted);
  // Calls visit(descriptor) for each port that has one to be heard.
  template <class Visit>
  void for_each_receive_fd(Visit visit) const {
    for (const Way& way : ways_) {
      if (way.port->receive_fd() >= 0) visit(way.port->receive_fd());
    }
  }
  // Whether all descriptors that they receive by are still theirs.
  bool is_whole() const {
    for (const Way& way : ways_) {
      if (!way.port->is_whole()) return false;
    }
    return true;
  }
  // Whether some port has none, and must be asked.
  bool must_be_asked() const { return must_be_asked_; }

  // ---- sending

  // Whether the QP would find its port full.
  bool is_full(const transport::QueuePair& qp) const {
    if (!any_full_) return false;
    if (goes_by_memory(qp)) return local_ != nullptr && local_->is_full(qp.route().port);
    return qp.route().port < ways_.size() && ways_[qp.route().port].full;
  }
  protocol::QpWay way(const transport::QueuePair& qp) const {
    if (!goes_by_memory(qp)) return protocol::QpWay::kWire;
    return local_ != nullptr ? local_->way(qp.route().port) : protocol::QpWay::kMemory;
  }
  // The QP has found its port full.
  void note_full(const transport::QueuePair& qp);
  // It waits until its port has room. REQUIRES: is_full(qp), it is in no list of QPs that are ready
  void wait(transport::QueuePair& qp);
  // Pushes what is staged to the wires. QPs whose port has room again go to `ready`.
  void flush(ReadyList& ready);
  // The same for somebody who is in the midst of sending: no QP goes anywhere.
  void push();
  // Only what goes by memory.
  void push_memory() {
    if (local_ != nullptr) local_->push();
  }
  bool any_full() const { return any_full_; }
  // Whether there are ways by memory, and nothing has come by them.
  bool memory_is_quiet() const { return local_ != nullptr && local_->is_quiet(); }
  // A descriptor that is writable when the full port may go on; -1 if there is none, or several are full.
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
