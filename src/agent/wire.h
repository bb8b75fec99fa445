// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <linux/filter.h>

#include "agent/courier.h"
#include "agent_client/link.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "roce/packet.h"

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
  Result<void> adopt(std::vector<UniqueFd> sockets);
  // Binds one more; answers its slot.
  Result<uint32_t> add();

  bool has_sockets() const { return !sockets_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(sockets_.size()); }
  int socket(uint32_t slot) const { return slot < size() ? sockets_[slot].get() : -1; }
  // Why there are none: a sentence for the user.
  const std::string& reason() const { return reason_; }
  // The same as long as there are none, else empty.
  std::string no_wire_reason() const { return has_sockets() ? std::string() : reason_; }
  // Somebody of our own user has the port: perhaps the clients of an agent that died.
  bool may_be_ours() const { return may_be_ours_; }

  // A socket without an owner takes no packets: the kernel drops them at once, and what had queued is gone.
  // Nothing of it is handed over any more, either.
  void mute(uint32_t slot);
  void unmute(uint32_t slot);

  // Where a link has peers, what comes for it from other hosts than these reaches no socket of the port.
  void hear_peers_of(const std::vector<agent_client::Link>& links);
  // The same for another socket of the port. False: it cannot be done; errno says why.
  bool guard(int socket) const;

  // The slot's owner is not given the socket: what comes is handed over to it, until mute(). Where to it is
  // handed, is for take_receiver() to give away, once.
  Result<void> hand_over(uint32_t slot);
  UniqueFd take_receiver(uint32_t slot);
  // The end by which it is handed over, for the next agent, which goes on with it; -1: it is not.
  int courier_end(uint32_t slot) const { return courier_ != nullptr ? courier_->end_of(slot) : -1; }
  Result<void> go_on_handing_over(uint32_t slot, UniqueFd courier_end);

 private:
  Result<void> steer();
  Result<void> engage_courier();
  void keep_from_strangers(uint32_t slot);

  uint16_t port_;
  std::vector<sock_filter> peer_filter_;  // empty: everybody is heard
  std::vector<UniqueFd> sockets_;         // by slot
  std::map<uint32_t, UniqueFd> receivers_;
  std::unique_ptr<Courier> courier_;  // from the first slot on that is handed over
  std::string reason_;
  bool may_be_ours_ = false;
  uint32_t failures_ = 0;  // of open(), one after the other
};

}  // namespace verbena::agent
