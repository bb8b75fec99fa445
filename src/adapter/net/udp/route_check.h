// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// ---- makes the kernel look for a neighbour's hardware address (ARP, neighbour discovery)

// Looks for neighbours by empty datagrams, and tells whether packets to them wait in the kernel. A datagram
// goes to the discard port (RFC 863), or to RoCE's port 4791 if a firewall refuses that.
//
// Sends from sockets that are bound from the beginning. Binding one for each search would take long where
// other users have taken most UDP ports: with one free port left, bind(2) takes 3 to 24 ms (measured). A
// datagram to a silent neighbour stays in its socket's buffer for some seconds. So there are several sockets
// with large buffers, and the first that is at most half full sends. Their ports receive nothing.
//
// Takes no lock that other users can hold; netlink waits for RTNL before Linux 6.13. One thread at a time.
class NeighbourSearches {
 public:
  static constexpr size_t kSockets = 4;  // of each address family

  explicit NeighbourSearches(TimePoint (*clock)() = MonotonicClock::now);

  // Makes the kernel look for the neighbour's hardware address. The datagram leaves by the network device
  // `interface_index`, whatever the routes say. Needs no privilege. Returns 0, or the errno value of
  // sendmsg(2) if neither datagram can be sent; EADDRINUSE if no port was free.
  int search(uint32_t interface_index, const roce::Address& neighbour);
  // Returns whether the kernel knows the neighbour's hardware address, or needs none on this device. If not,
  // makes the kernel look for the address. Returns nullopt if nothing can be sent, for example because of a
  // firewall.
  std::optional<bool> is_known(uint32_t interface_index, const roce::Address& neighbour);
  // Like waits_for_neighbour().
  std::optional<bool> waits(const roce::Path& path);

 private:
  struct Sockets {
    bool ipv4;
    std::array<UniqueFd, kSockets> bound{};
  };
  int socket_for(const roce::Address& neighbour);
  void bind_missing(Sockets& sockets);

  TimePoint (*clock_)();
  TimePoint next_bind_{};  // when ports are looked for again if there were none
  Sockets ipv4_{.ipv4 = true};
  Sockets ipv6_{.ipv4 = false};
};

// The next hop of a path: the router or the destination itself, and the network device that leads there.
struct NextHop {
  roce::Address address;  // zero if the destination is an address of this host
  uint32_t interface_index = 0;
};

// Queries the kernel's routes, neighbours and network devices, one query at a time (rtnetlink). The kernel
// answers during the system call that sends the query, so no function here waits. Needs no privilege. One
// thread at a time.
//
// Errors: EAGAIN if a query cannot be sent or gets no usable answer; other errors are the kernel's answers.
class RouteSocket {
 public:
  RouteSocket();
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Returns the next hop of a path. Errors: ENETUNREACH, EHOSTUNREACH or EACCES if there is no route.
  // REQUIRES: the path's source and destination are of one address family
  Result<NextHop> next_hop(const roce::Path& path);
  // Returns the state of a neighbour (NUD_*), or ENOENT if the kernel's neighbour table has no entry for it.
  Result<uint16_t> neighbour_state(const NextHop& neighbour);
  // Returns the IFF_* flags of a network device; only the lower 16 bits are reported. Uses ioctl(2), because
  // RTM_GETLINK of rtnetlink waits for a lock (RTNL) that any user with a user namespace can hold for
  // seconds.
  Result<unsigned> device_flags(uint32_t interface_index);

 private:
  template <class Body>
  struct Question;
  template <class Body, class Read>
  Result<void> ask(Question<Body>& question, uint16_t type, const Read& read);

  UniqueFd fd_;
};

// Asks the kernel whether packets of the path have a route, and whether the kernel knows the hardware address
// of their next hop. The kernel's RDMA core checks the same when a connected QP becomes RTR and when an
// address handle is created (ib_resolve_eth_dmac()). If the hardware address is unknown, the kernel searches
// for it, and check_route() waits at most for `patience`. With a `patience` of 0, an unknown address is an
// error only if the kernel has already searched for it without an answer. With the shortest patience,
// Duration(1), an unknown address is an error at once, and the search goes on.
//
// Addresses of this host and network devices without ARP need no hardware address. Only the kernel is asked,
// not the agent. Returns success for multicast destinations, if the kernel cannot be asked, and if a firewall
// blocks the search.
//
// Errors, with a reason: ENETUNREACH, EHOSTUNREACH or EACCES (the kernel's error) if there is no route;
// ETIMEDOUT if the next hop does not answer. Any thread, in the network namespace from which packets leave.
Result<void> check_route(const roce::Path& path, Duration patience);

// Returns whether packets of the path wait in the kernel until their next hop answers ARP or neighbour
// discovery. The kernel keeps them for some seconds, and they count in the buffers of the sockets that sent
// them. Returns false if there is no route. Returns nullopt if nobody can tell: there is no socket or no
// port, or a firewall refuses the datagram. Other users can take all ports, so nullopt does not mean false.
//
// Sends an empty datagram to the destination, as NeighbourSearches does, from a socket that the kernel gives
// a free port. It requests a timestamp when the datagram reaches the network device. A datagram that is still
// queued and has no timestamp waits for the next hop. Netlink could tell, too, but waits for a lock (RTNL)
// that other users can hold for seconds. Takes about 20 us where many ports are free, else up to 24 ms. Any
// thread, also with a shard's lock held.
std::optional<bool> waits_for_neighbour(const roce::Path& path);

}  // namespace verbena::net
