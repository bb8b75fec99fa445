// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <verbena/async/loop.hpp>
#include <verbena/async/timer.hpp>

namespace verbena::detail {

// The type of the function verbena_search_route() in Verbena's libibverbs. find_route_search() returns this
// function, or nullptr if the program has another libibverbs. A weak symbol would not do: the program would
// need the symbol version of Verbena's library, and would not start with another libibverbs.
using route_search_call = bool(ibv_context*, const ibv_ah_attr*);
inline route_search_call* find_route_search() {
  static route_search_call* const found =
      reinterpret_cast<route_search_call*>(::dlsym(RTLD_DEFAULT, "verbena_search_route"));
  return found;
}

// Returns whether ibv_modify_qp(3) and ibv_create_ah(3) would return at once with this address vector.
// Returns false while the hardware address of the next hop is unknown, and makes the kernel look for it. In
// this state, these calls would block the loop's thread for up to a second. Returns true if libibverbs has no
// such search.
inline bool search_route(ibv_context* device, const ibv_ah_attr& address) {
  route_search_call* const search = find_route_search();
  return search == nullptr || search(device, &address);
}

// Looks for the hardware address of a next hop while the loop goes on. Peers may make up their addresses.
class route_search {
 public:
  // Calls `on_end` with true as soon as the address is known, which may be before start() returns. Calls
  // `on_end` with false if the address is still unknown after about a second. Destroying this object ends the
  // search; `on_end` may do so.
  void start(loop& io, ibv_context* device, const ibv_ah_attr& address, std::function<void(bool)> on_end) {
    on_end_ = std::move(on_end);
    look(io, device, address, kFirstPause);
  }

 private:
  static constexpr duration kFirstPause = std::chrono::milliseconds(10);
  static constexpr duration kLongestPause = std::chrono::milliseconds(640);

  void look(loop& io, ibv_context* device, const ibv_ah_attr& address, duration pause) {
    const bool is_known = search_route(device, address);
    if (is_known || pause > kLongestPause) return std::exchange(on_end_, nullptr)(is_known);
    next_look_.start(io.timers(), io.now() + pause,
                     [this, &io, device, address, pause] { look(io, device, address, 2 * pause); });
  }

  std::function<void(bool)> on_end_;
  timer next_look_;
};

}  // namespace verbena::detail
