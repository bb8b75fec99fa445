// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "base/result.h"
#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// The socket options of a stream, except those about its state, errors and segment size, which the stream
// answers. Most only store a value. SO_REUSEADDR and IPV6_V6ONLY also act on the rdma_cm_id, keep-alive
// through Effect; TCP_KEEPCNT, TCP_KEEPINTVL and TCP_MAXSEG are accepted without effect. Unknown options fail
// with EOPNOTSUPP as in rdma-core: programs that then fall back to a plain socket rely on it. Not
// thread-safe: used under the stream's lock.
class StreamOptions {
 public:
  // The state of the stream, as far as options depend on it.
  struct Stage {
    rdma_cm_id* id;      // never null
    bool is_new;         // neither bound nor connected
    bool may_be_sized;   // no connection was requested or accepted yet
    const Sizes* sizes;  // those of the queue pair; null before it exists
  };
  // The action that the stream must take after an option was set.
  enum class Effect : uint8_t { kNone, kKeepAlive };

  Result<Effect> set(const Stage& stage, int level, int name, const void* value, socklen_t length);
  Result<void> get(const Stage& stage, int level, int name, OptionValue& value) const;

  // The interval at which to check that the peer is there; 0: never.
  std::chrono::seconds keep_alive_period() const {
    return std::chrono::seconds(keep_alive_ ? keep_alive_seconds_ : 0);
  }
  const Sizes& sizes() const { return sizes_; }
  // Copies the sizes that an accepted stream inherits from its listener.
  void take_sizes_of(const StreamOptions& listener) { sizes_ = listener.sizes_; }
  // Sets the path given by RDMA_ROUTE on the identifier. False if none was given or the path is refused.
  bool set_route_of(rdma_cm_id& id);

 private:
  Result<Effect> set_socket_option(const Stage& stage, int name, const void* value, socklen_t length);
  Result<void> set_linger(const void* value, socklen_t length);
  Result<Effect> set_tcp_option(int name, const void* value, socklen_t length);
  Result<void> set_rdma_option(const Stage& stage, int name, const void* value, socklen_t length);
  Result<void> get_socket_option(const Sizes& sizes, int name, OptionValue& value) const;
  Result<void> get_tcp_option(int name, OptionValue& value) const;
  Result<void> get_rdma_option(const Stage& stage, int name, OptionValue& value) const;
  Effect keep_alive_changed();
  const Sizes& sizes_at(const Stage& stage) const { return stage.sizes != nullptr ? *stage.sizes : sizes_; }

  Sizes sizes_;
  std::vector<std::byte> route_;  // RDMA_ROUTE; empty: not set
  bool reuse_address_ = false;
  bool keep_alive_ = false;
  bool inline_urgent_ = false;
  bool no_delay_ = false;
  bool own_family_ = false;
  bool lingers_ = true;
  int keep_alive_seconds_ = 0;  // 0: not read from the system yet
};

}  // namespace verbena::rsockets
