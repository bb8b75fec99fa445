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

// What every node of a trial is made for.
struct Shape {
  const char* program;       // as whom it complains
  ibv_qp_type type;          // RC, or UD, whose messages have room for a GRH in front
  int messages;              // of each direction
  int bytes;                 // of each message
  bool hears_itself = true;  // whether what it sends to a group comes back to it
};

// One connection of a trial, or one member of a group: an id, its queue pair, and one buffer for all
// messages, whose content nobody looks at. Owned by its trial and used by that thread alone.
//
// Functions answer 0, or what the program ends with, after they have said why.
class Node {
 public:
  Node(const Shape& shape, const Output& output) : shape_(shape), output_(output) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Id id;
  bool connected = false;
  // Of datagrams: whereto.
  uint32_t remote_number = 0;
  uint32_t remote_key = 0;

  int prepare();  // all that the id needs once it has a device
  int post_receives();
  int post_sends(unsigned flags);

  // Asks until all messages of one direction are there. `first` sees the first completion of all.
  int await_sends(Patience& patience) { return await(sends(), patience, "sent", {}); }
  int await_receives(Patience& patience, const std::function<int(ibv_wc&)>& first = {}) {
    return await(receives_.get(), patience, "received", first);
  }

  bool reaches_remote() const { return remote_ != nullptr; }
  int reach(ibv_ah_attr attributes);     // where an event says that the other end is
  int reach_sender(ibv_wc& completion);  // who sent a message that is in the buffer

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
  Queue sends_;  // none for datagrams, whose sends and receives have one queue
  Queue receives_;
  QueuePairOfId queue_pair_;
  AddressHandle remote_;
};

// Which queue pair a datagram names as the one to answer: in its immediate data. Nothing if it has none.
std::optional<uint32_t> number_to_answer(const ibv_wc& completion);

}  // namespace verbena::rdma_core
