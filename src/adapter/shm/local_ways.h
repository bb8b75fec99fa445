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

// The shared-memory routes that a shard has besides its ports, as the ports see them (Ports, LocalPeers).
// REQUIRES: the shard's lock is held.
class LocalWays {
 public:
  // Route::port of the shared-memory route to a slot is kFirst plus the slot.
  static constexpr uint32_t kFirst = 1u << 16;

  virtual ~LocalWays() = default;
  // Returns the shared-memory route to the QP's process; nullptr if there is none now. Asks the other process
  // for one. So only QPs that the program has named may be passed.
  virtual const transport::Route* find(const roce::Path& path, roce::Qpn destination) = 0;
  // As find(), but asks for none.
  virtual const transport::Route* find_open(const roce::Path& path, roce::Qpn destination) = 0;
  // Returns whether there is no such route yet, but the other process has been asked for one. Asks if it has
  // not been asked.
  virtual bool is_pending(const roce::Path& /*path*/, roce::Qpn /*destination*/) { return false; }
  // Returns the route to a multicast group: `by_port`, or one that also sends copies by shared memory.
  virtual const transport::Route& find_group(const roce::Path& path, const transport::Route& by_port) = 0;
  // Returns for the log why a QP of this host does not answer, as far as is known. Empty: unknown, or the QP
  // is not of this host.
  virtual std::string obstacle(const roce::Path& path, roce::Qpn destination) const {
    (void)path, (void)destination;
    return {};
  }
  // REQUIRES for all four: `port` is the one of a shared-memory route (kFirst and up), and so is the QP's.
  // is_full(): whether its lane has no room. way(): how the peer's memory is reached. note_full(): notes that
  // a packet found no room. wait(): gives the QP to flush() when there is room again.
  virtual bool is_full(uint32_t port) const = 0;
  virtual protocol::QpWay way(uint32_t port) const = 0;
  virtual void note_full(uint32_t port) = 0;
  virtual void wait(transport::QueuePair& qp) = 0;
  // Returns whether no packet has come, as far as can be seen quickly.
  virtual bool is_quiet() const = 0;
  // Rings (wakes) the processes that sleep and have new packets. Moves QPs whose route has room again to
  // `ready`. Returns whether a route is still full.
  virtual bool flush(ReadyList& ready) = 0;
  // Rings as flush() does, but moves no QP: for callers that are sending.
  virtual void push() = 0;
};

inline bool goes_by_memory(const transport::QueuePair& qp) {
  const uint32_t port = qp.route().port;
  return port >= LocalWays::kFirst && port != transport::Route::kNoPort;
}

}  // namespace verbena::engine
