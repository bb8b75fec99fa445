// SPDX-License-Identifier: Apache-2.0
#pragma once

struct ibv_context;
struct ibv_ah_attr;

// Whether ibv_modify_qp(3) and ibv_create_ah(3) would return at once with this address vector, with success
// or an error. While the hardware address of the next hop is unknown, returns false and makes the kernel look
// for the address. The two calls would then wait for up to a second. A thread that serves several peers calls
// this function first, so that a host that answers no ARP does not stop the thread.
//
// After a call that returns true, the thread's next call with this address vector does not wait, even if the
// hardware address has been lost meanwhile.
//
// Defined by Verbena's libibverbs. The function's address is null in programs with another libibverbs or an
// older version.
extern "C" [[gnu::weak]] bool verbena_search_route(ibv_context* context, const ibv_ah_attr* address) noexcept;

namespace verbena {

// Calls verbena_search_route(), and returns its result. Returns true if the program has no such function.
inline bool search_route(ibv_context* context, const ibv_ah_attr& address) {
  return verbena_search_route == nullptr || verbena_search_route(context, &address);
}

}  // namespace verbena
