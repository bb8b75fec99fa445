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

// The options of ucmatose, udaddy and mckey: messages per connection and direction, and bytes per message.
struct Plan {
  const char* program = nullptr;  // the program's name in its output
  ibv_qp_type type = IBV_QPT_RC;  // RC or UD; buffers of UD begin with room for a GRH
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
  bool hears_itself = true;  // a node receives its own multicast messages
  bool json = false;
};

// One connection of a trial, or one member of a multicast group: an id, its queue pair, and one buffer for
// all messages. Nobody checks the content of messages. Owned by a trial, and used by the trial's thread only.
//
// A function that fails throws a Failure after its message.
class Node {
 public:
  Node(const Plan& plan, const Output& output) : plan_(plan), output_(output) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Id id;
  bool connected = false;
  // Queue pair number and Q_Key of the peer, for datagrams.
  uint32_t remote_number = 0;
  uint32_t remote_key = 0;

  void prepare();  // creates all objects; call once the id has a device
  void post_receives();
  void post_sends(unsigned flags);

  // Poll until all messages of one direction are complete. Call `first`, if set, with the first of these
  // completions. Print the message of `patience` after 10 seconds.
  void await_sends(Patience& patience) { await(sends(), patience, "sent", {}); }
  void await_receives(Patience& patience, const std::function<void(ibv_wc&)>& first = {}) {
    await(receives_.get(), patience, "received", first);
  }

  bool reaches_remote() const { return remote_ != nullptr; }
  void reach(ibv_ah_attr attributes);     // creates the address handle from an event's attributes
  void reach_sender(ibv_wc& completion);  // creates the address handle for the sender of a received message

  nlohmann::ordered_json description() const;

 private:
  void make_queues();
  void make_queue_pair();
  void make_message();
  bool datagrams() const { return plan_.type == IBV_QPT_UD; }
  ibv_cq* sends() const { return sends_ ? sends_.get() : receives_.get(); }
  void await(ibv_cq* queue, Patience& patience, const char* done, const std::function<void(ibv_wc&)>& first);

  const Plan& plan_;
  const Output& output_;
  Domain domain_;
  std::vector<uint8_t> memory_;
  Region region_;
  CompletionQueue sends_;  // null for UD, which uses one queue for sends and receives
  CompletionQueue receives_;
  QueuePairOfId queue_pair_;
  AddressHandle remote_;
};

// Returns the queue pair number to which an answer must go: the immediate data of the received datagram.
// Returns nullopt if the datagram has no immediate data.
std::optional<uint32_t> number_to_answer(const ibv_wc& completion);

// Returns the options that ucmatose, udaddy and mckey have in common. They set members of `plan`. Option -s
// differs between the programs, so the result lacks -s.
std::vector<Option> common_options(Plan& plan);

// A port space of option -P, and its number (enum rdma_port_space).
struct PortSpace {
  std::string_view name;
  int space;
};
// Returns the common_options() and those that only ucmatose and udaddy have in common. Sets the port space of
// `plan` to `usual`. Option -P sets it to `other` if its argument begins with the name of `other`, ignoring
// case. Other names cause a warning.
std::vector<Option> two_way_options(Plan& plan, const PortSpace& usual, const PortSpace& other);

// Returns option -p of udaddy and mckey: the port space as a number.
Option port_space_number(Plan& plan);

// The common part of ucmatose, udaddy and mckey: connects nodes by librdmacm's events and sends messages both
// ways. The subclasses differ in how a node finds its peer, and in the order of messages. Single-threaded.
//
// A function that fails throws a Failure after its message. run() returns the exit status.
class Trial {
 public:
  Trial(const char* name, ibv_qp_type type, Plan plan);
  virtual ~Trial() = default;

  // Runs the program, including all its output. Returns the exit status.
  int run();

 protected:
  // Does the work of the program, before run() prints "test complete": calls call() or serve().
  virtual void perform();
  virtual void call() {}
  virtual void serve() {}

  // Handlers of librdmacm's events. A subclass overrides the handlers of the events that its program expects.
  // accept() returns the result of rdma_accept().
  virtual void address_resolved(Node& node);
  virtual int accept(Node&) { return 0; }
  virtual void established(Node&, const rdma_ud_param&) {}
  virtual void disconnected(rdma_cm_id*) {}
  virtual void joined(Node&, const rdma_ud_param&) {}
  virtual rdma_conn_param connection() const { return {}; }

  bool needs_ids() const { return !plan_.destination.empty(); }
  void listen();
  void begin_calls();  // finds the addresses, and begins to resolve them for each node
  // Handle events until connects_left_ or `left` is 0. `words` returns the message for a long wait.
  void serve_until_connected();
  void serve_while(const int& left, const std::function<std::string()>& words);
  void connected(Node& node);                             // counts the node as connected
  void reached(Node& node, const rdma_ud_param& remote);  // prepares to send to `remote`
  void send(unsigned flags);                              // all messages of all nodes
  // Wait for the messages of all connected nodes. `first` is as in Node::await_receives().
  void await_sends(const char* words);
  void await_receives(const std::function<std::string()>& words,
                      const std::function<void(Node&, ibv_wc&)>& first = {});
  void require_port_fits(const Node& node) const;
  int complain_of_call(const std::string& what) const;  // prints the program's name and errno; returns -1
  [[noreturn]] void fail_call(const std::string& what) const { throw Failure{complain_of_call(what)}; }

  Plan plan_;
  const char* const name_;  // plan_.program
  Output output_;
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
  void make_nodes();
  void find_both_ends(const char* what);  // `what` is the function's name in messages
  // Creates an id on channel_ with this context. On failure prints `complaint`, and throws a Failure with
  // `status`.
  rdma_cm_id* make_id(void* context, int status, const char* complaint);
  void handle(rdma_cm_event& event);
  void route_resolved(Node& node);
  void requested(rdma_cm_id* id);
  void set_ack_timeout(rdma_cm_id* id);
  void report();

  size_t next_node_ = 0;
};

}  // namespace verbena::rdma_core
