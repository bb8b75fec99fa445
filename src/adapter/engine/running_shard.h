// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/local_peers.h"
#include "adapter/engine/multicast_groups.h"
#include "adapter/engine/shard.h"
#include "adapter/engine/status_mapping.h"
#include "adapter/memory/key_table.h"
#include "adapter/net/port.h"
#include "control/client/client.h"

namespace verbena::engine {

// A shard with all that it runs on: the slot that the agent lends it, the page that `verbena status` reads,
// its port, its multicast groups and its engine thread. Ends with everything, and gives the slot back.
class RunningShard {
 public:
  struct Surroundings {
    control::Client& client;
    memory::Readers& readers;  // the shard becomes one
    MulticastGroups::Surroundings groups;
    net::PortFactory open_ports = net::open_ports;
    OwnBoard* board = nullptr;
    GuestPlaces* guests = nullptr;          // see LocalPeers
    std::function<void()> on_loss = [] {};  // see EngineThread::start()
  };

  // Without the thread. Errors: the agent's, which may have no slot left.
  static Result<std::unique_ptr<RunningShard>> create(Surroundings surroundings);
  ~RunningShard();
  RunningShard(const RunningShard&) = delete;
  RunningShard& operator=(const RunningShard&) = delete;

  // Starts the engine thread; see EngineThread::start().
  Result<void> start_thread(int control_fd, std::function<void()> on_control);
  void stop_thread() { thread_.reset(); }
  // Descriptors are not ours any more, of this shard or another: it ends, and with it its thread; the shard
  // stays, and does nothing.
  void lose() {
    shard_->lose();
    if (thread_ != nullptr) thread_->end();
  }

  Shard& shard() { return *shard_; }
  MulticastGroups& multicast() { return *multicast_; }
  // nullptr: the user does not want any (VERBENA_LOCAL=off).
  LocalPeers* local_peers() { return local_peers_.get(); }
  // Why packets can neither come nor go; empty when they can.
  const std::string& no_wire_reason() const { return no_wire_reason_; }

  // Before fork(): see EngineThread::await_beginning().
  void await_thread(Duration patience) const {
    if (thread_ != nullptr) thread_->await_beginning(patience);
  }
  // In a child after fork(): all of it is the parent's.
  void abandon();

 private:
  explicit RunningShard(Surroundings surroundings);
  Result<void> take_slot();

  const Surroundings surroundings_;
  uint32_t slot_ = 0;
  bool has_slot_ = false;
  std::string no_wire_reason_;
  std::unique_ptr<StatusMapping> status_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<LocalPeers> local_peers_;
  std::unique_ptr<MulticastGroups> multicast_;
  std::unique_ptr<EngineThread> thread_;  // last: stops first
};

}  // namespace verbena::engine
