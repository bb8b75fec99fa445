// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/handles.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// One end of a pingpong over XRC: one shared receive queue, and for each other end (a client has one) a queue
// pair that receives and one that sends. Each step that fails complains. Used by one thread.
class XrcEndpoint {
 public:
  XrcEndpoint(const PingpongProgram& program, const Settings& settings)
      : program_(program), settings_(settings) {}
  ~XrcEndpoint();
  XrcEndpoint(const XrcEndpoint&) = delete;
  XrcEndpoint& operator=(const XrcEndpoint&) = delete;

  // All up to queue pairs that can receive, and a receive for each other end.
  bool open(ibv_device* device);

  // Where the queue pairs for the other end of that number are to be reached.
  std::optional<XrcAddress> address(size_t index);
  bool connect(size_t index, const XrcAddress& remote);

  // Sends to an other end through the queue pairs of that number.
  bool post_send(const XrcAddress& remote, size_t queue_pair, bool last);
  bool post_receive();

  bool await_event();
  // The other end that the next completion is of; `came` is false if there is none yet. False after a
  // complaint.
  bool poll_received(bool& came, size_t& from);
  // Waits for the completions of the last send to each.
  bool await_sent();

  bool close();

 private:
  // A queue cannot be destroyed before each of its events is acknowledged.
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

  // A client of several, or a server of so many.
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
  UniqueFd file_;  // whose inode the XRC domain is
  XrcDomain xrc_domain_;
  CompletionQueue received_;
  CompletionQueue sent_;
  SharedQueue shared_;
  std::vector<QueuePair> receiving_;
  std::vector<QueuePair> sending_;
};

}  // namespace verbena::rdma_core
