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

// The ways by memory that a shard has beside its ports, as its ports know them: see Ports and LocalPeers.
// With the shard's lock held.
class LocalWays {
 public:
  // Route::port of the way to a slot is this and the slot.
  static constexpr uint32_t kFirst = 1u << 16;

  virtual ~LocalWays() = default;
  // The route to the QP's process; nullptr when there is none by memory, now. Asks for one, so only the
  // program may have named the QP.
  virtual const transport::Route* find(const roce::Path& path, roce::Qpn destination) = 0;
  // The same without asking.
  virtual const transport::Route* find_open(const roce::Path& path, roce::Qpn destination) = 0;
  // Whether there is none yet, and the other process has been asked for one.
  virtual bool is_pending(const roce::Path& /*path*/, roce::Qpn /*destination*/) { return false; }
  // The route of what goes to a multicast group, by this port and perhaps by memory, too.
  virtual const transport::Route& find_group(const roce::Path& path, const transport::Route& by_port) = 0;
  // For the log: why a QP of this host does not answer, as far as is known. Empty: it is not of this host.
  virtual std::string obstacle(const roce::Path& path, roce::Qpn destination) const {
    (void)path, (void)destination;
    return {};
  }
  // REQUIRES for all four: `port` is of one of these ways
  virtual bool is_full(uint32_t port) const = 0;
  virtual protocol::QpWay way(uint32_t port) const = 0;
  virtual void note_full(uint32_t port) = 0;
  virtual void wait(transport::QueuePair& qp) = 0;
  // Whether nothing has come, as far as can be seen at once.
  virtual bool is_quiet() const = 0;
  // Wakes those who sleep and have got something. QPs whose way has room again go to `ready`. Whether a way
  // is still full.
  virtual bool flush(ReadyList& ready) = 0;
  // The same for somebody who is in the midst of sending: no QP goes anywhere.
  virtual void push() = 0;
};

inline bool goes_by_memory(const transport::QueuePair& qp) {
  const uint32_t port = qp.route().port;
  return port >= LocalWays::kFirst && port != transport::Route::kNoPort;
}

}  // namespace verbena::engine
