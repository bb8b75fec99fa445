// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The neighbour to which packets of a path go first.
struct NextHop {
  roce::Address address;  // zero: none, as the destination is an address of this host
  uint32_t interface_index = 0;
};

// Asks the kernel's routing one question at a time (rtnetlink). The kernel answers before the call that asks
// returns, so nothing here waits. Needs no privilege. One thread at a time.
//
// Errors: EAGAIN: the kernel cannot be asked; others are the kernel's answers.
class RouteSocket {
 public:
  RouteSocket();
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // The next hop of a path. ENETUNREACH, EHOSTUNREACH, EACCES: there is no route. REQUIRES: both addresses
  // are of one family
  Result<NextHop> next_hop(const roce::Path& path);
  // The neighbour's state (NUD_*). ENOENT: the kernel has not looked for it.
  Result<uint16_t> neighbour_state(const NextHop& neighbour);
  // A network device's IFF_* flags.
  Result<unsigned> device_flags(uint32_t interface_index);

 private:
  template <class Body>
  struct Question;
  template <class Body, class Read>
  Result<void> ask(Question<Body>& question, uint16_t type, const Read& read);

  UniqueFd fd_;
};

}  // namespace verbena::net
