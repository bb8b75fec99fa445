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

  // Creates all objects, makes the queue pairs able to receive, and posts a receive for each peer.
  bool open(ibv_device* device);

  // Returns the addresses of the queue pairs for the peer with this index.
  std::optional<XrcAddress> address(size_t index);
  bool connect(size_t index, const XrcAddress& remote);

  // Sends to a peer through the queue pair with this index. Only the last send to a peer is signaled.
  bool post_send(const XrcAddress& remote, size_t queue_pair, bool last);
  bool post_receive();

  bool await_event();
  // Polls for a received message. Sets `came`, and `from` to the index of its sender. False after reporting
  // an error.
  bool poll_received(bool& came, size_t& from);
  // Busy-polls the send CQ until the last send to each peer (the only signaled ones) has completed. False on
  // error.
  bool await_sent();

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

  // The number of peers; 1 for a client.
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
