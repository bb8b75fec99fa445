// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/handles.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// One end of a pingpong over XRC: one shared receive queue, and for each peer a receiving and a sending queue
// pair. A client has one peer, the server. Functions that fail report the error. Single-threaded.
class XrcEndpoint {
 public:
  XrcEndpoint(const PingpongProgram& program, const Settings& settings)
      : program_(program), settings_(settings) {}
  ~XrcEndpoint();
  XrcEndpoint(const XrcEndpoint&) = delete;
  XrcEndpoint& operator=(const XrcEndpoint&) = delete;

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

  // Waits for an event of the receive CQ, and requests the next one. REQUIRES: Settings::events is set
  bool await_event();
  // Polls once for a received message. Sets `came` to whether there was one, and `from` to the index of its
  // sender. Returns false after reporting an error.
  bool poll_received(bool& came, size_t& from);
  // Busy-polls the send CQ until the last send to each peer, the only signaled one, has completed.
  bool await_sent();

  // Destroys all objects. Returns false, after reporting the error, if one cannot be destroyed.
  bool close();

 private:
  // Acknowledges all events, as destroying a completion queue requires.
  void acknowledge_events();
  bool allocate();
  bool check_port();
  bool has_features();
  bool open_domain();
  bool make_queues();
  bool make_pair(size_t index);
  QueuePair make_receiving() const;
  QueuePair make_sending() const;
  bool initialize(ibv_qp* queue_pair, int access, const char* what, size_t index);
  bool connect_receiving(size_t index, const XrcAddress& remote);
  bool connect_sending(size_t index, const XrcAddress& remote);
  bool modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const std::string& what,
              const char* state);
  bool ask_for_event();

  // Returns the number of peers: Settings::clients, which is 1 for a client.
  size_t ends() const { return settings_.clients; }

  const PingpongProgram& program_;
  const Settings& settings_;
  int access_ = IBV_ACCESS_LOCAL_WRITE;
  unsigned events_ = 0;
  uint16_t lid_ = 0;
  std::vector<uint32_t> psns_;

  Memory buffer_;
  Context context_;
  Channel channel_;
  Domain domain_;
  Region region_;
  UniqueFd file_;  // its inode identifies the XRC domain
  XrcDomain xrc_domain_;
  CompletionQueue received_;
  CompletionQueue sent_;
  SharedQueue shared_;
  std::vector<QueuePair> receiving_;
  std::vector<QueuePair> sending_;
};

}  // namespace verbena::rdma_core
