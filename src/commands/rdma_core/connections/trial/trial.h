// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/command_line.h"

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

// The options of ucmatose, udaddy and mckey: messages per connection and direction, and bytes per message.
struct Plan {
  int connections = 1;
  int messages = 10;
  int bytes = 100;
  std::string destination;
  std::string source;
  std::string port;
  rdma_addrinfo hints = {};
  std::optional<uint8_t> tos;
  std::optional<uint8_t> ack_timeout;
  bool migrate = false;
  bool hears_itself = true;
  bool json = false;
};

// Returns the options that ucmatose, udaddy and mckey have in common. They set members of `plan`. Option -s
// differs between the programs, so it is not among them.
std::vector<Option> common_options(Plan& plan);

// Returns them and those that ucmatose and udaddy have in common. -P chooses the port space `other` instead
// of the default one; both go by the beginnings of their names, ignoring case.
struct PortSpace {
  std::string_view name;
  int space;
};
std::vector<Option> two_way_options(Plan& plan, const PortSpace& usual, const PortSpace& other);

// Returns option -p of udaddy and mckey: the port space as a number.
Option port_space_number(Plan& plan);

// The common part of ucmatose, udaddy and mckey: connects nodes by librdmacm's events and sends messages both
// ways. The subclasses differ in how a node finds its peer, and in the order of messages. Single-threaded.
//
// Functions return 0, or the exit status after reporting the error.
class Trial {
 public:
  Trial(const char* name, ibv_qp_type type, Plan plan);
  virtual ~Trial() = default;

  // Runs the program, including all its output. Returns the exit status.
  int run();

 protected:
  // Does the work of the program, before run() prints "test complete": calls call() or serve().
  virtual int perform();
  virtual int call() { return 0; }
  virtual int serve() { return 0; }

  // Handlers of librdmacm's events. A subclass overrides those that its program expects.
  virtual int address_resolved(Node& node);
  virtual int route_resolved(Node& node);
  virtual int accept(Node&) { return 0; }
  virtual int established(Node&, const rdma_ud_param&) { return 0; }
  virtual void disconnected(rdma_cm_id*) {}
  virtual int joined(Node&, const rdma_ud_param&) { return 0; }
  virtual rdma_conn_param connection() const { return {}; }

  bool needs_ids() const { return !plan_.destination.empty(); }
  int find_both_ends(const char* what);  // `what` is the function's name in messages
  int listen();
  int begin_calls();  // finds the addresses, and begins to resolve them for each node
  // Handle events until connects_left_ or `left` is 0. `words` returns the message for a long wait.
  int serve_until_connected();
  int serve_while(const int& left, const std::function<std::string()>& words);
  void connected(Node& node);                            // counts the node as connected
  int reached(Node& node, const rdma_ud_param& remote);  // prepares to send to `remote`
  // Wait for the messages of all connected nodes. `first` is as in Node::await_receives().
  int await_sends(const char* words);
  int await_receives(const std::function<std::string()>& words,
                     const std::function<int(Node&, ibv_wc&)>& first = {});
  int fits_port(const Node& node) const;
  int complain_of_call(const std::string& what) const;  // prints the program's name and errno
  int for_each_node(const std::function<int(Node&)>& call);

  const char* name_;  // the program's name in its output
  Plan plan_;
  Output output_;
  Shape shape_;
  Channel channel_;
  AddressInfo addresses_;
  Id listener_;
  std::vector<Id> refused_;
  std::vector<std::unique_ptr<Node>> nodes_;
  int connects_left_;
  int disconnects_left_ = 0;
  double connecting_ = 0;    // seconds
  double transferring_ = 0;  // seconds

 private:
  int make_nodes();
  int handle(rdma_cm_event& event);
  int requested(rdma_cm_id* id);
  void set_ack_timeout(rdma_cm_id* id);
  void report();

  size_t next_node_ = 0;
};

}  // namespace verbena::rdma_core
