// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/net/port.h"
#include "adapter/net/udp/receiver.h"
#include "agent/deadline_timer.h"
#include "agent/event_loop.h"
#include "agent/mad/link_fabrics.h"
#include "base/random.h"
#include "base/time.h"
#include "management/cm/mad.h"
#include "management/mad/agent_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Finds the agents of other hosts on each link's network, and announces this one. Each agent sends its
// adapter's data every 7.5 to 10 seconds, to a multicast group that no router forwards. A new agent asks for
// answers, so that it knows the others at once. A link answers at most ten times a second, however many
// agents ask. For the agent's thread.
class Discovery {
 public:
  struct Surroundings {
    std::function<bool()> has_wire;
    // Sends a datagram to all members of the multicast group path.destination.
    std::function<void(const cm::Mad& mad, const roce::Path& path)> send;
    // Applies the UDP port's packet filter to a socket (Wire::guard()). Returns false on failure.
    std::function<bool(int socket)> guard;
  };
  // `port`: the agents' UDP port. REQUIRES: loop and fabrics outlive this object
  Discovery(EventLoop& loop, LinkFabrics& fabrics, uint16_t port, Surroundings surroundings);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

  // Starts to listen and announce on new and changed links, and stops on removed ones. Has no effect until
  // the agent's UDP port is open, so call it again then.
  void links_changed();
  // Returns the time at which neighbours on all links will have had 300 ms to answer the first announcement.
  TimePoint settled() const { return settled_; }

 private:
  class Listener;
  struct Place {
    std::vector<std::unique_ptr<Listener>> listeners;
    TimePoint next{};
    TimePoint last{};
    bool knows_others = false;
  };

  void begin(uint32_t device_index, const LinkFabric& fabric);
  void on_announcement(uint32_t device_index, const mad::Announcement& announcement,
                       const roce::Address& from);
  void announce(uint32_t device_index, Place& place);
  void on_timer();
  void arm_timer();

  EventLoop& loop_;
  LinkFabrics& fabrics_;
  const uint16_t port_;
  const Surroundings surroundings_;
  Random random_;
  net::PortCounters counters_;
  std::map<uint32_t, Place> places_;  // by device index
  TimePoint settled_{};
  DeadlineTimer timer_{loop_, [this] { on_timer(); }};
};

}  // namespace verbena::agent
