// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// ---- makes the kernel look for a neighbour's hardware address (ARP, neighbour discovery)

// Opens a socket for search_neighbour(). Returns an empty UniqueFd on failure, with the reason in errno.
UniqueFd open_neighbour_search(bool ipv4);

// Opens any number of sockets for search_neighbour(), also after another user has taken all UDP ports. Each
// socket gets a free port of its own. If there is none, it shares a port of its address family that this
// object holds, and for a second all further sockets do. The held port is not used otherwise: to join it, the
// kernel walks over all sockets whose ports have the same hash, and other users may have bound very many. One
// thread at a time.
class NeighbourSearches {
 public:
  NeighbourSearches();

  // Returns a bound socket, or an empty UniqueFd on failure, with the reason in errno.
  UniqueFd open(bool ipv4);

 private:
  struct HeldPort {
    UniqueFd holder;
    uint16_t number = 0;  // 0: no port was free, so each socket has to find its own
  };
  static HeldPort take_port(bool ipv4);

  HeldPort ipv4_;
  HeldPort ipv6_;
  TimePoint next_own_port_{};  // when the kernel may look for a free port again
};

// Sends an empty datagram to the neighbour, so that the kernel looks for its hardware address. The datagram
// goes to the discard port (RFC 863), or to RoCE's port 4791 if a firewall refuses that. It leaves by the
// network device `interface_index`, whatever the routes say. Needs no privilege. Returns 0, or the errno
// value of sendmsg(2) if neither datagram can be sent. REQUIRES: the socket and the neighbour are of the same
// address family
int search_neighbour(int socket, uint32_t interface_index, const roce::Address& neighbour);

// Returns whether the kernel knows the neighbour's hardware address, or needs none on this device. If not,
// makes the kernel look for the address, like search_neighbour(). Takes no lock that other users can hold.
// Netlink waits for RTNL before Linux 6.13. Returns nullopt if nothing can be sent, for example because of a
// firewall. REQUIRES: nothing was sent by the socket before
std::optional<bool> is_neighbour_known(int socket, uint32_t interface_index, const roce::Address& neighbour);

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
// them. Returns false if there is no route. Returns nullopt if nobody can tell: the socket is -1 or gets no
// port, or a firewall refuses the datagram. Other users can take all ports, so nullopt does not mean false.
//
// Sends an empty datagram like search_neighbour() to the destination, with a request for a timestamp when the
// datagram reaches the network device. A datagram that is still queued and has no timestamp waits for the
// next hop. Netlink could tell, too, but waits for a lock (RTNL) that other users can hold for seconds. Takes
// about 20 us. Any thread, also with a shard's lock held. REQUIRES: the socket is of the destination's
// address family, and nothing was sent by it before
std::optional<bool> waits_for_neighbour(int socket, const roce::Path& path);
// The same, from a socket of its own that the kernel gives a free port.
std::optional<bool> waits_for_neighbour(const roce::Path& path);

}  // namespace verbena::net
