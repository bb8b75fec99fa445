// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <sys/types.h>

#include "adapter/net/udp/route_check.h"
#include "agent/cm/address.h"
#include "agent/event_loop.h"
#include "agent/links/netlink_attributes.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

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

// A route lookup, like that of `ip route get`.
struct RouteQuestion {
  CmAddress source{};  // family 0 or a wildcard: the kernel chooses
  CmAddress destination{};
  uint32_t interface_index = 0;  // outgoing netdev; 0: the kernel chooses
  uint8_t type_of_service = 0;
};

struct RouteAnswer {
  CmAddress source{};            // without a port
  uint32_t interface_index = 0;  // outgoing netdev; the loopback netdev for addresses of this host
  bool is_local = false;         // the destination is an address of this host
  CmAddress next_hop{};          // family 0: no neighbour is needed, as for a multicast group
  uint8_t hop_limit = 64;
};

// The way to ask the kernel whether it knows a neighbour.
enum class NeighbourQuery : uint8_t {
  kByNetlink,   // RTM_GETNEIGH
  kByDatagram,  // net::NeighbourSearches::is_known()
};

// Queries routes and neighbours from the kernel by rtnetlink (RTM_GETROUTE, RTM_GETNEIGH). The kernel answers
// within the call that sends the query, so no query waits for an event. This class must not ask about netdevs
// (RTM_GETLINK): the kernel then takes its lock for the configuration of all network namespaces (RTNL), which
// others may hold for seconds. Before Linux 6.13, RTM_GETNEIGH takes this lock, too, so there a datagram
// tells whether a neighbour is known. For one thread.
class RouteQuery {
 public:
  // Fails with the errno of the netlink socket.
  static Result<RouteQuery> open();
  // Like open(), but asks for neighbours in this way whatever the kernel.
  static Result<RouteQuery> open(NeighbourQuery how);

  // Returns the kernel's route. Errors are the kernel's: ENETUNREACH, EHOSTUNREACH, EACCES (prohibited),
  // EINVAL (the source is no address of this host).
  Result<RouteAnswer> ask(const RouteQuestion& question);

  // Returns whether the neighbour's hardware address is known, even if it is stale. The kernel's rdma_cm has
  // the same condition. Returns false if the kernel cannot be asked. REQUIRES: has_known_family(neighbour)
  bool knows_neighbour(uint32_t interface_index, const CmAddress& neighbour);
  // net::NeighbourSearches::search().
  int search(uint32_t interface_index, const CmAddress& neighbour) {
    return searches_.search(interface_index, gid_of(neighbour));
  }

 private:
  RouteQuery(NetlinkSocket socket, NeighbourQuery how) : socket_(std::move(socket)), how_(how) {}
  bool is_neighbour_valid(uint32_t interface_index, const CmAddress& neighbour);

  NetlinkSocket socket_;
  NeighbourQuery how_;
  net::NeighbourSearches searches_;
  uint32_t sequence_ = 0;
};

// The netdev, family and address of a neighbour. Used as an ordered key, not as a hashed one. With a hash, a
// user could choose addresses that collide with another neighbour's, and each message about that neighbour
// would search all of the user's entries.
using NeighbourKey = std::tuple<uint32_t, uint16_t, std::array<uint8_t, 16>>;

NeighbourKey key_of(uint32_t interface_index, const CmAddress& neighbour);

// Resolves the hardware addresses of neighbours, any number at a time. The kernel looks for a neighbour when
// a packet is sent to it. So this class sends an empty datagram to the neighbour's discard port, and
// rtnetlink reports the result. If the kernel gives up, or a datagram cannot be sent, the search starts again
// after a pause.
//
// All users share a socket for each address family. Datagrams to neighbours that do not answer wait in the
// kernel for some seconds, and may fill the socket's buffer. Then a new socket replaces the full one.
//
// The netlink socket stays open as long as this object. Binding or closing a netlink socket that gets events
// waits for a lock of the kernel that other users can hold for long. The socket is read only while any wait
// is pending. For the agent's thread.
class Neighbours {
 public:
  // Called with 0 if the hardware address is known, or with ETIMEDOUT.
  using Done = std::function<void(int error)>;
  using Ticket = uint64_t;  // 0: none

  // Returns whether packets leave a netdev without a neighbour's hardware address.
  using NeedsNone = std::function<bool(uint32_t interface_index)>;

  // REQUIRES: loop and routes outlive this object
  Neighbours(EventLoop& loop, RouteQuery& routes, NeedsNone needs_none);
  ~Neighbours();

  // Calls `done` when the neighbour's hardware address is known, or at the deadline. `done` is called in a
  // turn of the user, never before await() returns. Returns a ticket for cancel().
  Ticket await(uid_t user, uint32_t interface_index, const CmAddress& neighbour, TimePoint deadline,
               Done done);
  // Ends the wait without calling `done`. Ignores the ticket of a wait that has ended.
  void cancel(Ticket ticket);
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    uid_t user;
    uint32_t interface_index;
    CmAddress neighbour;
    UserTimers::Id timer;
    Done done;
  };
  bool is_known(uint32_t interface_index, const CmAddress& neighbour) {
    return needs_none_(interface_index) || routes_.knows_neighbour(interface_index, neighbour);
  }
  // Returns the newest wait for this neighbour, or nullptr if the neighbour is known or nobody waits for it.
  const Waiting* newest_wait(const NeighbourKey& key) const;
  void listen();
  void stop_listening();
  void receive();
  void found(uint32_t interface_index, const CmAddress& neighbour);
  void look_for_all();
  void look_for_some();
  void look_again(const NeighbourKey& key, Duration pause);
  void provoke(uint32_t interface_index, const CmAddress& neighbour);
  void finish(Ticket ticket, int error);

  EventLoop& loop_;
  RouteQuery& routes_;
  const NeedsNone needs_none_;
  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, Waiting> waiting_;
  // Waits for neighbours that are not known. The ticket distinguishes several waits for one neighbour.
  std::set<std::pair<NeighbourKey, Ticket>> by_neighbour_;
  // Neighbours that are looked for again after a pause, each with the user in whose turn that is.
  std::set<std::pair<NeighbourKey, uid_t>> pausing_;
  std::optional<NeighbourKey> next_look_;  // for look_for_some(); nullopt: all were looked for
  NetlinkSocket events_;
  bool listens_ = false;
  EventLoop::QueuedTask stop_{loop_, [this] { stop_listening(); }};
};

}  // namespace verbena::agent
