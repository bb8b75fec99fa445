// SPDX-License-Identifier: Apache-2.0
#pragma once

struct ibv_context;
struct ibv_ah_attr;

// Whether ibv_modify_qp(3) and ibv_create_ah(3) return at once with this address vector. Returns false while
// the hardware address of the next hop is unknown, and makes the kernel look for it. Those calls would wait
// for a second. Threads that serve several peers ask first: a host that answers no ARP must not stop them.
//
// Defined by libibverbs. The address is null in programs with another or an older one.
extern "C" [[gnu::weak]] bool verbena_search_route(ibv_context* context, const ibv_ah_attr* address) noexcept;

namespace verbena {

// Like verbena_search_route(); true if that function is not there.
inline bool search_route(ibv_context* context, const ibv_ah_attr& address) {
  return verbena_search_route == nullptr || verbena_search_route(context, &address);
}

}  // namespace verbena
