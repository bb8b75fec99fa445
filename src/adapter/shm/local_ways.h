// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "adapter/transport/queue_pair.h"
#include "adapter/transport/route.h"
#include "base/intrusive_list.h"
#include "control/protocol/status_page.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::engine {

using ReadyList = IntrusiveList<transport::QueuePair, &transport::QueuePair::ready_hook>;

// The interface by which a shard's ports (Ports) use the shared-memory routes of the shard. LocalPeers
// implements it. REQUIRES: the shard's lock is held.
class LocalWays {
 public:
  // Route::port of the shared-memory route to a slot is kFirst plus the slot.
  static constexpr uint32_t kFirst = 1u << 16;

  virtual ~LocalWays() = default;
  // Returns the shared-memory route to the QP's process, or nullptr if there is none now. If there is none,
  // asks the other process for one. REQUIRES: this process's program has named the QP as a destination
  virtual const transport::Route* find(const roce::Path& path, roce::Qpn destination) = 0;
  // As find(), but asks for none.
  virtual const transport::Route* find_open(const roce::Path& path, roce::Qpn destination) = 0;
  // Returns whether there is no shared-memory route to the QP's process yet, but that process has been asked
  // for one and may still answer. Asks it if it has not been asked. REQUIRES: as for find()
  virtual bool is_pending(const roce::Path& /*path*/, roce::Qpn /*destination*/) { return false; }
  // Returns the route to a multicast group: `by_port`, or one that also sends copies by shared memory.
  virtual const transport::Route& find_group(const roce::Path& path, const transport::Route& by_port) = 0;
  // Returns a text for the log that says why a QP of this host does not answer. Returns an empty text if the
  // reason is unknown, or if the QP is not of this host.
  virtual std::string obstacle(const roce::Path& path, roce::Qpn destination) const {
    (void)path, (void)destination;
    return {};
  }
  // is_full(): whether the lane of the route with this port has no room. way(): how the peer's memory is
  // reached. note_full(): notes that a packet found no room. wait(): makes flush() move the QP to its `ready`
  // list when there is room again. REQUIRES for all four: `port`, or the port of the QP's route, is that of a
  // shared-memory route (kFirst and up)
  virtual bool is_full(uint32_t port) const = 0;
  virtual protocol::QpWay way(uint32_t port) const = 0;
  virtual void note_full(uint32_t port) = 0;
  virtual void wait(transport::QueuePair& qp) = 0;
  // Returns whether no packet has come, as far as can be seen quickly.
  virtual bool is_quiet() const = 0;
  // Rings (wakes) the processes that sleep and for which there are new packets. Moves QPs whose route has
  // room again to `ready`. Returns whether a route is still full.
  virtual bool flush(ReadyList& ready) = 0;
  // Rings as flush() does, but moves no QP: for callers that are sending.
  virtual void push() = 0;
};

inline bool goes_by_memory(const transport::QueuePair& qp) {
  const uint32_t port = qp.route().port;
  return port >= LocalWays::kFirst && port != transport::Route::kNoPort;
}

}  // namespace verbena::engine
