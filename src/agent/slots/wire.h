// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <linux/filter.h>

#include "agent/slots/forwarder.h"
#include "agent/slots/port_holder.h"
#include "agent/slots/socket_calls.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/link.h"
#include "wire/roce/packet.h"

namespace verbena::agent {

// Owns UDP port 4791: the SO_REUSEPORT group whose k-th socket belongs to slot k.
//
// The kernel numbers a group's sockets in the order in which they were bound, and steers packets by that
// number. So the agent must own all sockets, from the first on. It cannot join a group that another process
// began: another program, or a dead agent whose clients keep its sockets open. It can only take over such a
// group as a whole.
//
// Only slot 0's socket can send, so all packets from the port are the agent's. A process with another socket
// can neither send as the agent, nor hold the socket's lock by a send that waits (MSG_MORE).
class Wire {
 public:
  explicit Wire(uint16_t port) : port_(port) {}

  // Opens the group with slot 0's socket if no process has the port; has_sockets() and reason() tell the
  // outcome. In a row of failed calls, only every 16th looks up which process has the port.
  void open();
  // Takes over the sockets of an agent that died, slot 0's first. EINVAL if they are not such a group.
  // `shared`: the slots for which share() was called.
  Result<void> adopt(std::vector<UniqueFd> sockets, std::set<uint32_t> shared = {});
  // Binds one more socket and returns its slot.
  Result<uint32_t> add();

  bool has_sockets() const { return !sockets_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(sockets_.size()); }
  int socket(uint32_t slot) const { return slot < size() ? sockets_[slot]->get() : -1; }
  // Returns why there are no sockets: a sentence for the user.
  const std::string& reason() const { return reason_; }
  // Returns reason() while there are no sockets, else an empty string.
  std::string no_wire_reason() const { return has_sockets() ? std::string() : reason_; }
  // Whether only processes of the agent's own user have the port: perhaps clients of an agent that died.
  bool may_be_ours() const { return may_be_ours_; }

  // Makes the slot's socket drop all packets, empties its queue, and stops forwarding. For a slot without a
  // holder. A shared socket may be muted a moment later: its user may hold the lock.
  void mute(uint32_t slot);
  void unmute(uint32_t slot);

  // Notes that a process of an untrusted user has the slot's socket. It can hold the socket's lock, so the
  // agent's calls on the socket may block.
  void share(uint32_t slot) { shared_.insert(slot); }
  // Whether 256 or more calls on shared sockets are incomplete. Then no untrusted user gets a socket.
  bool is_held_up() const { return calls_.waiting() >= kMaxWaiting; }

  // Restricts links that have peers: packets to them from other hosts reach no socket of the port.
  void hear_peers_of(const std::vector<control::Link>& links);
  // Applies the same filter to another socket of the port. Returns false and sets errno on failure.
  bool guard(int socket) const;

  // Starts to forward the slot's packets, until mute(): its holder does not get the socket. take_receiver()
  // then returns the receiver's end, once.
  Result<void> forward(uint32_t slot);
  UniqueFd take_receiver(uint32_t slot);
  // Shuts down the forwarding pair. From now on no process can forward to the slot's holder, not even one
  // that has a copy of the agent's end (stopped_agent.h).
  void hang_up(uint32_t slot);
  // Returns the forwarder's end of the pair, with which the next agent continues. -1: packets are not
  // forwarded.
  int forwarder_end(uint32_t slot) const { return forwarder_ != nullptr ? forwarder_->end_of(slot) : -1; }
  Result<void> go_on_forwarding(uint32_t slot, UniqueFd forwarder_end);

 private:
  static constexpr size_t kMaxWaiting = 256;
  // How long the agent's start waits to learn who has the port. Later nothing waits for it.
  static constexpr Duration kSearchPatience = std::chrono::milliseconds(500);

  // The port cannot be bound: finds out why.
  void note_failure(int error);
  Result<void> steer();
  Result<void> engage_forwarder();
  // Calls `call` with the slot's socket: at once, or through SocketCalls if the socket is shared.
  void use(uint32_t slot, std::function<void(int socket)> call);

  uint16_t port_;
  std::vector<sock_filter> peer_filter_;                  // empty: packets of all hosts pass
  std::vector<std::shared_ptr<const UniqueFd>> sockets_;  // by slot; pending calls share ownership
  std::set<uint32_t> shared_;
  SocketCalls calls_;
  std::map<uint32_t, UniqueFd> receivers_;
  std::unique_ptr<Forwarder> forwarder_;  // exists from the first forwarded slot on
  std::string reason_;
  bool may_be_ours_ = false;
  uint32_t failures_ = 0;  // consecutive failures of open()
  PortHolderSearch holder_search_;
};

}  // namespace verbena::agent
