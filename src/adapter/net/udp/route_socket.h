// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The next hop of a path: the router or the destination itself, and the network device that leads there.
struct NextHop {
  roce::Address address;  // zero if the destination is an address of this host
  uint32_t interface_index = 0;
};

// Queries the kernel's routes, neighbours and network devices, one query at a time (rtnetlink). The kernel
// answers during the system call that sends the query, so no function here waits. Needs no privilege. One
// thread at a time.
//
// Errors: EAGAIN if the kernel cannot be asked; other errors are the kernel's answers.
class RouteSocket {
 public:
  RouteSocket();
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Returns the next hop of a path. Errors: ENETUNREACH, EHOSTUNREACH or EACCES if there is no route.
  // REQUIRES: the path's source and destination are of one address family
  Result<NextHop> next_hop(const roce::Path& path);
  // Returns the state of a neighbour (NUD_*), or ENOENT if the kernel's neighbour table has no entry for it.
  Result<uint16_t> neighbour_state(const NextHop& neighbour);
  // Returns the IFF_* flags of a network device.
  Result<unsigned> device_flags(uint32_t interface_index);

 private:
  template <class Body>
  struct Question;
  template <class Body, class Read>
  Result<void> ask(Question<Body>& question, uint16_t type, const Read& read);

  UniqueFd fd_;
};

}  // namespace verbena::net
