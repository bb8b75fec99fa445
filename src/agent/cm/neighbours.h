// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "agent/cm/address.h"
#include "agent/cm/route_query.h"
#include "agent/event_loop.h"
#include "agent/links/netlink_attributes.h"
#include "base/time.h"
#include "base/unique_fd.h"

struct nlmsghdr;

namespace verbena::agent {

// The content of an RTM_NEWNEIGH message.
struct NeighbourMessage {
  uint32_t interface_index = 0;
  CmAddress address{};
  uint16_t state = 0;  // NUD_*

  // Returns whether the neighbour's hardware address may be used, even if it is stale (NUD_VALID).
  bool is_valid() const;
};

// Reads an RTM_NEWNEIGH message about an IPv4 or IPv6 neighbour. Returns nullopt for any other message.
std::optional<NeighbourMessage> read_neighbour(const nlmsghdr* message);

// Resolves the hardware addresses of neighbours, any number at a time. The kernel looks for a neighbour when
// a packet is sent to it. So this class sends an empty datagram to the neighbour's discard port, and
// rtnetlink reports the result. If the kernel gives up, the search starts again. For the agent's thread.
class Neighbours {
 public:
  // Called with 0 if the hardware address is known, or with ETIMEDOUT.
  using Done = std::function<void(int error)>;
  using Ticket = uint64_t;  // 0: none

  // REQUIRES: loop and routes outlive this object
  Neighbours(EventLoop& loop, RouteQuery& routes) : loop_(loop), routes_(routes) {}
  ~Neighbours();

  // Calls `done` when the neighbour's hardware address is known, or at the deadline. `done` is called from
  // the event loop, never before await() returns. Returns a ticket for cancel().
  Ticket await(uint32_t interface_index, const CmAddress& neighbour, TimePoint deadline, Done done);
  // Ends the wait without calling `done`. Ignores the ticket of a wait that has ended.
  void cancel(Ticket ticket);
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    uint32_t interface_index;
    CmAddress neighbour;
    EventLoop::TimerId timer;
    Done done;
  };
  using Key = uint64_t;  // hash of netdev and address: entries with equal hashes are compared

  static Key key_of(uint32_t interface_index, const CmAddress& neighbour);
  bool anyone_waits_for(uint32_t interface_index, const CmAddress& neighbour) const;
  void listen();
  void stop_listening();
  void receive();
  void found(uint32_t interface_index, const CmAddress& neighbour);
  void ask_for_all();
  void provoke(uint32_t interface_index, const CmAddress& neighbour);
  void provoke_again(uint32_t interface_index, const CmAddress& neighbour);
  void finish(Ticket ticket, int error);

  EventLoop& loop_;
  RouteQuery& routes_;
  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, Waiting> waiting_;
  // Waits by neighbour. The ticket distinguishes several waits for one neighbour.
  std::set<std::pair<Key, Ticket>> by_neighbour_;
  NetlinkSocket events_;  // open while any wait is pending
  UniqueFd ipv4_;
  UniqueFd ipv6_;
};

}  // namespace verbena::agent
