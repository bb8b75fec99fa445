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

// The agent's hold on UDP port 4791: the SO_REUSEPORT group whose k-th socket is slot k's.
//
// The kernel numbers the sockets of a group in the order in which they were bound, and steers by that number.
// So the group must be all ours from the first socket on: one that was begun by somebody else (another
// program, or an agent that died and whose sockets live on in its clients) cannot be joined, only taken over
// as a whole.
//
// Only slot 0's socket can send, so all that leaves from the port is the agent's. A process that has another
// socket can neither speak in the agent's name, nor hold the socket's lock by a send that waits (MSG_MORE).
class Wire {
 public:
  explicit Wire(uint16_t port) : port_(port) {}

  // Opens the group with slot 0's socket, if nobody has the port. Whatever the outcome, has_sockets() and
  // reason() tell it. Called again and again, it looks up who has the port only now and then.
  void open();
  // Takes over the sockets of an agent that died, slot 0's first. EINVAL if they are not such a group.
  // `shared`: those that share() was called for.
  Result<void> adopt(std::vector<UniqueFd> sockets, std::set<uint32_t> shared = {});
  // Binds one more; answers its slot.
  Result<uint32_t> add();

  bool has_sockets() const { return !sockets_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(sockets_.size()); }
  int socket(uint32_t slot) const { return slot < size() ? sockets_[slot]->get() : -1; }
  // Why there are none: a sentence for the user.
  const std::string& reason() const { return reason_; }
  // The same as long as there are none, else empty.
  std::string no_wire_reason() const { return has_sockets() ? std::string() : reason_; }
  // Somebody of our own user has the port: perhaps the clients of an agent that died.
  bool may_be_ours() const { return may_be_ours_; }

  // A socket without an owner takes no packets: the kernel drops them at once, and what had queued is gone.
  // Nothing of it is handed over any more, either.
  // For a shared socket, that happens a moment later if its user has it so.
  void mute(uint32_t slot);
  void unmute(uint32_t slot);

  // From now on a process has the slot's socket whose user is not trusted: it may hold the socket's lock.
  void share(uint32_t slot) { shared_.insert(slot); }
  // It does so, and should have no more sockets.
  bool is_held_up() const { return calls_.waiting() >= kMaxWaiting; }

  // Where a link has peers, what comes for it from other hosts than these reaches no socket of the port.
  void hear_peers_of(const std::vector<control::Link>& links);
  // The same for another socket of the port. False: it cannot be done; errno says why.
  bool guard(int socket) const;

  // The slot's owner is not given the socket: what comes is handed over to it, until mute(). Where to it is
  // handed, is for take_receiver() to give away, once.
  Result<void> hand_over(uint32_t slot);
  UniqueFd take_receiver(uint32_t slot);
  // From now on nobody hands anything over to the slot's owner, not even a process that has a copy of our end
  // of the pair (stopped_agent.h).
  void hang_up(uint32_t slot);
  // The end by which it is handed over, for the next agent, which goes on with it; -1: it is not.
  int courier_end(uint32_t slot) const { return forwarder_ != nullptr ? forwarder_->end_of(slot) : -1; }
  Result<void> go_on_handing_over(uint32_t slot, UniqueFd courier_end);

 private:
  static constexpr size_t kMaxWaiting = 256;
  // How long the agent's start waits to learn who has the port. Later nothing waits for it.
  static constexpr Duration kSearchPatience = std::chrono::milliseconds(500);

  // The port cannot be bound: finds out why.
  void note_failure(int error);
  Result<void> steer();
  Result<void> engage_courier();
  // Calls it with the slot's socket: now, or where the socket is shared as SocketCalls has it.
  void use(uint32_t slot, std::function<void(int socket)> call);

  uint16_t port_;
  std::vector<sock_filter> peer_filter_;                  // empty: everybody is heard
  std::vector<std::shared_ptr<const UniqueFd>> sockets_;  // by slot; calls under way have some, too
  std::set<uint32_t> shared_;
  SocketCalls calls_;
  std::map<uint32_t, UniqueFd> receivers_;
  std::unique_ptr<Forwarder> forwarder_;  // from the first slot on that is handed over
  std::string reason_;
  bool may_be_ours_ = false;
  uint32_t failures_ = 0;  // of open(), one after the other
  PortHolderSearch holder_search_;
};

}  // namespace verbena::agent
