// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <linux/filter.h>
#include <sys/types.h>

#include "agent/slots/forwarder.h"
#include "agent/slots/process.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/link.h"

namespace verbena::agent {

// Makes the agent's system calls on sockets of which a user's process has a copy. This process can hold the
// socket's lock for any time. For example, setsockopt(2) reads its argument under the lock, and the argument
// may be in a mapped file whose server does not answer. So a separate thread makes the calls, one after the
// other. The thread starts with the first queued call and ends after the last.
//
// All methods are called on the agent's thread. Only make() waits, for up to 50 ms.
class SocketCalls {
 public:
  using Call = std::function<void()>;

  SocketCalls();
  // Does not wait for the thread, which finishes the queued calls.
  ~SocketCalls() = default;
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;

  // Queues the call and waits up to 50 ms for its completion. If a call takes longer, make() waits for no
  // further call until the queue has been empty. REQUIRES: the call owns all that it uses
  void make(Call call);
  // Returns the number of calls that are queued or in progress.
  size_t waiting() const;

 private:
  struct Work;
  static void* run(void* work);

  const std::shared_ptr<Work> work_;
};

// Owns the sockets of UDP port 4791, a SO_REUSEPORT group whose k-th socket receives the packets of slot k.
//
// The kernel numbers a group's sockets in the order in which they were bound, and steers packets by that
// number. So the agent must own all sockets, from the first on. The agent cannot add sockets to a group of
// another program, or of a killed agent whose clients keep its sockets open. It can only adopt a killed
// agent's group as a whole.
//
// Only slot 0's socket can send, so all packets from the port are the agent's. A process with another socket
// can neither send as the agent, nor hold the socket's lock by a send that waits (MSG_MORE).
class Wire {
 public:
  // `closer`: shuts down and closes ends of forwarding pairs (Forwarder).
  explicit Wire(uint16_t port, ForeignCloser* closer = nullptr) : port_(port), closer_(closer) {}
  ForeignCloser* closer() const { return closer_; }

  // Opens the group with slot 0's socket if no process has the port. Afterwards has_sockets() tells whether
  // that succeeded, and reason() why not. A search for the process that has the port starts only at the first
  // of successive failures and every 16th after it. Only the first failure waits for the search, for up to
  // 500 ms.
  void open();
  // Adopts the sockets of a killed agent, in the order of their slots from 0 on. EINVAL if the sockets are
  // not a group of this port. `shared` has the slots for which share() was called.
  Result<void> adopt(std::vector<UniqueFd> sockets, std::set<uint32_t> shared = {});
  // Binds one more socket and returns its slot. The socket drops all packets until unmute().
  Result<uint32_t> add();

  bool has_sockets() const { return !sockets_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(sockets_.size()); }
  int socket(uint32_t slot) const { return slot < size() ? sockets_[slot]->get() : -1; }
  // Returns why there are no sockets, for users: "UDP port 4791 is taken by another program".
  const std::string& reason() const { return reason_; }
  // Returns reason() while there are no sockets, else an empty string.
  std::string no_wire_reason() const { return has_sockets() ? std::string() : reason_; }
  // Returns whether all sockets that are bound to the port belong to the agent's own user, or may belong to
  // it while their owners are not known yet. A killed agent may have left them to its clients. Then it is
  // worth waiting until one of these clients sends the takeover state.
  bool may_be_ours() const { return may_be_ours_; }

  // Makes the slot's socket drop all packets, empties the socket's queue, and stops forwarding. Called when
  // the slot's lease ends. The user of a shared socket (share()) may hold the socket's lock. Then the first
  // two of these actions follow a moment later.
  void mute(uint32_t slot);
  // Empties the slot's socket, then lets packets in, subject to hear_peers_of(). Called for a new lease.
  void unmute(uint32_t slot);

  // Records that a process of an untrusted user has the slot's socket. The process can hold the socket's
  // lock, so later calls on the socket go through SocketCalls.
  void share(uint32_t slot) { shared_.insert(slot); }
  // Returns whether 256 or more system calls on shared sockets are incomplete, because users' processes hold
  // the sockets' locks. Then no untrusted user gets a socket.
  bool is_held_up() const { return calls_.waiting() >= kMaxWaiting; }

  // Sets a filter on the sockets of the port: a link that has a list of peers (Link::peers) receives packets
  // only from these peers.
  void hear_peers_of(const std::vector<control::Link>& links);
  // Returns a function that sets the present filter of hear_peers_of() on another socket, such as one of a
  // multicast group. It locks the filter, so that a program that gets the socket cannot remove it. It returns
  // false and sets errno on failure. Any thread may call it, also after this object's end.
  std::function<bool(int socket)> guard() const;

  // Starts to forward the slot's packets to a process of `user`, which does not get the socket. mute() stops
  // the forwarding. The next take_receiver() returns the receiver's end of the socket pair, for the slot's
  // holder. EMFILE if the user has no descriptors left (Forwarder::begin()).
  Result<void> forward(uint32_t slot, uid_t user);
  // Returns the receiver's end of the pair that the last forward() has created, or an empty descriptor.
  UniqueFd take_receiver(uint32_t slot);
  // Stops forwarding and shuts down the slot's socket pair, perhaps a moment later. From then on no process
  // can forward to the slot's former holder, not even the standby, which has a copy of the agent's end
  // (StoppedAgent).
  void hang_up(uint32_t slot);
  // Returns the forwarder's end of the slot's socket pair, or -1 if the slot's packets are not forwarded. The
  // takeover state gets a copy, so that the next agent can continue to forward.
  int forwarder_end(uint32_t slot) const { return forwarder_ != nullptr ? forwarder_->end_of(slot) : -1; }
  Result<void> go_on_forwarding(uint32_t slot, uid_t user, UniqueFd forwarder_end);

 private:
  static constexpr size_t kMaxWaiting = 256;
  // Maximum wait of the first failed open() to learn which process has the port. Later calls do not wait.
  // With 200,000 sockets of another user the kernel's list of them takes seconds to read.
  static constexpr Duration kSearchPatience = std::chrono::milliseconds(500);

  // Sets `reason_` after a failed bind(2) with this errno.
  void note_failure(int error);
  Result<void> steer();
  Result<void> engage_forwarder();
  // Calls `call` with the slot's socket: directly, or on the thread of SocketCalls if the socket is shared.
  void use(uint32_t slot, std::function<void(int socket)> call);

  uint16_t port_;
  std::vector<sock_filter> peer_filter_;                  // empty: packets of all hosts pass
  std::vector<std::shared_ptr<const UniqueFd>> sockets_;  // by slot; pending calls share ownership
  std::set<uint32_t> shared_;
  SocketCalls calls_;
  ForeignCloser* const closer_;
  std::map<uint32_t, UniqueFd> receivers_;
  std::unique_ptr<Forwarder> forwarder_;  // exists from the first forwarded slot on
  std::string reason_;
  bool may_be_ours_ = false;
  uint32_t failures_ = 0;  // consecutive failures of open()
  PortHolderSearch holder_search_;
};

}  // namespace verbena::agent
