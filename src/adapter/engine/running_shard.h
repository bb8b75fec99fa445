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

// A shard with everything that it needs to run: the slot that the agent leases to it, the status page, its
// ports, its multicast groups and its engine thread. The destructor ends all of it and returns the slot.
class RunningShard {
 public:
  struct Surroundings {
    control::Client& client;
    memory::Readers& readers;  // the shard is added to these
    MulticastGroups::Surroundings groups;
    net::PortFactory open_ports = net::open_ports;
    OwnBoard* board = nullptr;
    GuestPlaces* guests = nullptr;          // see LocalPeers
    std::function<void()> on_loss = [] {};  // see EngineThread::start()
  };

  // Creates the shard without its engine thread. Errors: the agent's, which may have no free slot; the
  // kernel's.
  static Result<std::unique_ptr<RunningShard>> create(Surroundings surroundings);
  ~RunningShard();
  RunningShard(const RunningShard&) = delete;
  RunningShard& operator=(const RunningShard&) = delete;

  // Starts the engine thread; see EngineThread::start().
  Result<void> start_thread(int control_fd, std::function<int()> on_control);
  void stop_thread() { thread_.reset(); }
  // Called when descriptors of this shard or of another turn out not to be ours any more. Ends the engine
  // thread. The shard stays, and its calls are harmless.
  void lose() {
    shard_->lose();
    if (thread_ != nullptr) thread_->end();
  }

  Shard& shard() { return *shard_; }
  MulticastGroups& multicast() { return *multicast_; }
  // Returns nullptr if the user has disabled shared memory (VERBENA_LOCAL=off).
  LocalPeers* local_peers() { return local_peers_.get(); }
  // Returns why packets can neither be sent to nor received from other hosts; empty: they can.
  const std::string& no_wire_reason() const { return no_wire_reason_; }

  // Before fork(): see EngineThread::await_beginning().
  void await_thread(Duration patience) const {
    if (thread_ != nullptr) thread_->await_beginning(patience);
  }
  // For a child after fork(): lets go of everything without effect on the parent.
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
