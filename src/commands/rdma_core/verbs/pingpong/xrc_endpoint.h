// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "commands/rdma_core/verbs/pingpong/end.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {

// One end of a pingpong over XRC: one shared receive queue, and for each peer a receiving and a sending queue
// pair. A client has one peer, the server. Functions that fail report the error.
class XrcEndpoint : public PingpongEnd {
 public:
  XrcEndpoint(const PingpongProgram& program, const Settings& settings) : PingpongEnd(program, settings) {}

  // Creates all objects, moves the queue pairs to INIT, and posts a receive for each peer.
  bool open(ibv_device* device);

  // Returns the address for the peer with this index, with a new random PSN. Call it once, before connect().
  std::optional<XrcAddress> address(size_t index);
  // Moves the queue pairs for the peer with this index to RTS.
  bool connect(size_t index, const XrcAddress& remote);

  // Sends to the peer `remote` through the sending queue pair with this index. `last` marks the last send to
  // this peer; only that send is signaled.
  bool post_send(const XrcAddress& remote, size_t queue_pair, bool last);
  bool post_receive();

  // Polls once for a received message. Sets `from` to the index of its sender, or to nullopt if none came.
  bool poll_received(std::optional<size_t>& from);
  // Busy-polls the send CQ until the last send to each peer, the only signaled one, has completed.
  bool await_sent();

  // Destroys all objects. Returns false, after reporting the error, if one cannot be destroyed.
  bool close();

 private:
  bool has_features();
  bool open_domain();
  bool make_queues();
  bool make_pair(size_t index);
  QueuePair make_receiving() const;
  QueuePair make_sending() const;
  // Polls a CQ once. Sets `came` to whether there was a completion.
  bool poll(ibv_cq* queue, ibv_wc& completion, bool& came) const;
  ibv_sge piece() const;

  // Returns the number of peers: Settings::clients, which is 1 for a client.
  size_t ends() const { return settings_.clients; }

  uint32_t lid_ = 0;
  std::vector<uint32_t> psns_;

  Region region_;
  UniqueFd file_;  // its inode identifies the XRC domain
  XrcDomain xrc_domain_;
  CompletionQueue sent_;
  SharedQueue shared_;
  std::vector<QueuePair> receiving_;
  std::vector<QueuePair> sending_;
};

}  // namespace verbena::rdma_core
