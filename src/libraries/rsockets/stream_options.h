// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include <rdma/rdma_cma.h>

#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// Stores and returns the socket options of a stream, except state, errors and segment size, which class
// Stream returns. Sizes of buffers and queues take effect when a connection is set up. SO_REUSEADDR and
// IPV6_V6ONLY also act on the rdma_cm_id. For the keep-alive options, class Stream sets a timer. SO_LINGER,
// SO_OOBINLINE and TCP_NODELAY are only stored; TCP_KEEPCNT, TCP_KEEPINTVL and TCP_MAXSEG are ignored.
// Unknown options fail with EOPNOTSUPP as in rdma-core: programs that then fall back to a plain socket rely
// on it. Not thread-safe: used under the stream's lock.
class StreamOptions {
 public:
  // The state of the stream, as far as options depend on it.
  struct Stage {
    rdma_cm_id* id;      // never null
    bool is_new;         // neither bound nor connected
    bool may_be_sized;   // no connection was requested or accepted yet
    const Sizes* sizes;  // sizes of the queue pair; null before it exists
  };

  Result<void> set(const Stage& stage, int level, int name, const void* value, socklen_t length);
  Result<void> get(const Stage& stage, int level, int name, OptionValue& value) const;

  // Returns the interval at which to check that the peer is alive; 0 if keep-alive is off.
  std::chrono::seconds keep_alive_period() const {
    return std::chrono::seconds(keep_alive_ ? keep_alive_seconds_ : 0);
  }
  const Sizes& sizes() const { return sizes_; }
  // Copies the sizes that an accepted stream inherits from its listener.
  void take_sizes_of(const StreamOptions& listener) { sizes_ = listener.sizes_; }
  // Gives `id` the path that the application has set by RDMA_ROUTE. Then no route needs to be resolved.
  // Returns false if no path was set or librdmacm refuses it.
  bool set_route_of(rdma_cm_id& id);

 private:
  Result<void> set_rdma_option(const Stage& stage, int name, const void* value, socklen_t length);

  Sizes sizes_;
  std::vector<std::byte> route_;  // RDMA_ROUTE; empty if not set
  bool reuse_address_ = false;
  bool keep_alive_ = false;
  bool inline_urgent_ = false;
  bool no_delay_ = false;
  bool own_family_ = false;
  bool lingers_ = true;
  int keep_alive_seconds_ = 0;  // 0 until the system's default is read
};

}  // namespace verbena::rsockets
