// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/net/port.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "agent/slots/wire.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"
#include "management/mad/agent_messages.h"
#include "management/mad/performance.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// A link and the simulated subnet that programs see on it. Also has the performance management of two ports:
// the link's own and the switch port in front of it.
struct LinkFabric {
  control::Link link;
  mad::Subnet subnet;
  mad::Performance own_performance{};
  mad::Performance switch_performance{};

  // Returns the path to `destination`. The path's source is an address of this link of the same kind as the
  // destination (IPv4, IPv6 link-local, or other IPv6). Returns nullopt if the link has no such address.
  std::optional<roce::Path> path_to(const roce::Address& destination) const;
};

// Owns the LinkFabric of each link. Pure: no system calls.
class LinkFabrics {
 public:
  // `host`: this host's name. An adapter's description is the host's name and the link's.
  explicit LinkFabrics(std::string host) : host_(std::move(host)) {}

  void links_changed(const std::vector<control::Link>& links);
  LinkFabric* find(uint32_t device_index);
  std::map<uint32_t, LinkFabric>& all() { return fabrics_; }
  // Time at which neighbours on all links will have had 300 ms to answer the first announcement. Datagrams of
  // programs wait until then. Set by Discovery.
  TimePoint settled{};

 private:
  std::string host_;
  std::map<uint32_t, LinkFabric> fabrics_;  // by device index
};

mad::Adapter adapter_of(const control::Link& link, const std::string& host);
// Returns a link's counters in InfiniBand's form, which counts words of four bytes instead of octets.
mad::PortCounters port_counters_of(const control::DeviceCounters& counters);

// Finds the agents of other hosts on each link's network, and announces this one. Each agent sends its
// adapter's data every 7.5 to 10 seconds, to a multicast group that no router forwards. A new agent requests
// answers, so that it knows the others at once. On each link, an agent answers at most ten times a second,
// however many agents send requests. For the agent's thread.
//
// Joining and leaving a group wait for the kernel's lock for network devices (RTNL), which users can hold for
// seconds (NetdevSpeeds). So threads of the agent's own user join and leave. A link without carrier keeps its
// groups, because the other end of a veth pair can change the carrier as often as it likes.
class Discovery {
 public:
  // `port`: the agents' UDP port. REQUIRES: the references and this object outlive the tasks of `closer`
  Discovery(EventLoop& loop, LinkFabrics& fabrics, uint16_t port, CmService& cm, const Wire& wire,
            ForeignCloser& closer);
  ~Discovery();

  // Starts to listen on links that are new or have other addresses, and stops on removed ones. Announces this
  // agent on links that have come up. Tries again to join groups that could not be joined. Does nothing while
  // the agent's UDP port is not open. Call it again once the port is open.
  void links_changed();

 private:
  class Listener;
  struct Place {
    std::vector<std::shared_ptr<Listener>> listeners;  // one for each group that the link can reach
    TimePoint next = kNever;
    TimePoint last{};
    bool is_up = false;
    bool asks = false;  // the next announcement requests answers
    bool knows_others = false;
  };

  void link_changed(uint32_t device_index, const control::Link& link);
  void join(const std::shared_ptr<Listener>& listener, const std::string& link);
  void end_join(Listener& listener, const std::string& link, Result<ForeignCloser::SharedFd> socket);
  void announce_soon(Place& place);
  void on_announcement(uint32_t device_index, const mad::Announcement& announcement,
                       const roce::Address& from);
  void announce(uint32_t device_index, Place& place);
  void on_timer();
  void arm_timer();

  EventLoop& loop_;
  LinkFabrics& fabrics_;
  const uint16_t port_;
  CmService& cm_;
  const Wire& wire_;
  ForeignCloser& closer_;
  Random random_;
  net::PortCounters counters_;
  std::map<uint32_t, Place> places_;  // by device index
  DeadlineTimer timer_{loop_, [this] { on_timer(); }};
};

}  // namespace verbena::agent
