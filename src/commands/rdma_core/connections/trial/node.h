// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/events.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// The parameters that all nodes of a trial have in common.
struct Shape {
  const char* program;       // the program's name in messages
  ibv_qp_type type;          // RC or UD; buffers of UD begin with room for a GRH
  int messages;              // number of messages per node and direction
  int bytes;                 // payload of a message, in bytes
  bool hears_itself = true;  // a node receives its own multicast messages
};

// One connection of a trial, or one member of a multicast group: an id, its queue pair, and one buffer for
// all messages. Nobody checks the content of messages. Owned by a trial, and used by the trial's thread only.
//
// Functions return 0, or the exit status after reporting the error.
class Node {
 public:
  Node(const Shape& shape, const Output& output) : shape_(shape), output_(output) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Id id;
  bool connected = false;
  // Queue pair number and Q_Key of the peer, for datagrams.
  uint32_t remote_number = 0;
  uint32_t remote_key = 0;

  int prepare();  // creates all objects; call once the id has a device
  int post_receives();
  int post_sends(unsigned flags);

  // Poll until all messages of one direction are complete. Call `first`, if set, with the first of these
  // completions. Print the message of `patience` after 10 seconds.
  int await_sends(Patience& patience) { return await(sends(), patience, "sent", {}); }
  int await_receives(Patience& patience, const std::function<int(ibv_wc&)>& first = {}) {
    return await(receives_.get(), patience, "received", first);
  }

  bool reaches_remote() const { return remote_ != nullptr; }
  int reach(ibv_ah_attr attributes);     // creates the address handle from an event's attributes
  int reach_sender(ibv_wc& completion);  // creates the address handle for the sender of a received message

  nlohmann::ordered_json description() const;

 private:
  int make_queues();
  int make_queue_pair();
  int make_message();
  bool datagrams() const { return shape_.type == IBV_QPT_UD; }
  ibv_cq* sends() const { return sends_ ? sends_.get() : receives_.get(); }
  int await(ibv_cq* queue, Patience& patience, const char* done, const std::function<int(ibv_wc&)>& first);

  const Shape& shape_;
  const Output& output_;
  Domain domain_;
  std::vector<uint8_t> memory_;
  Region region_;
  CompletionQueue sends_;  // null for UD, which uses one queue for sends and receives
  CompletionQueue receives_;
  QueuePairOfId queue_pair_;
  AddressHandle remote_;
};

// Returns the queue pair number to reply to, which is a datagram's immediate data; nullopt if it has none.
std::optional<uint32_t> number_to_answer(const ibv_wc& completion);

}  // namespace verbena::rdma_core
