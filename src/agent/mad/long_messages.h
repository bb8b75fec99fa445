// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "agent/deadline_timer.h"
#include "agent/event_loop.h"
#include "agent/mad/correspondent.h"
#include "agent/mad/registrations.h"
#include "base/quota.h"
#include "control/protocol/mad_messages.h"
#include "management/mad/rmpp_receiver.h"
#include "management/mad/rmpp_sender.h"

namespace verbena::agent {

// RMPP: sends and receives messages of several datagrams for programs. Splits, reassembles, acknowledges and
// repeats, as the kernel does for its users. For the agent's thread.
class LongMessages {
 public:
  // A message that is being sent, and its sender.
  struct Sending {
    uint64_t port = 0;  // 0: no program's port; an answer of the agent's simulated subnet
    uid_t user = 0;
    protocol::UserMad header{};  // as in the program's datagram
    uint32_t device_index = 0;
    uint16_t lid = 0;                 // of the destination
    std::optional<Correspondent> to;  // nothing: there is no path to it
  };
  struct Surroundings {
    // Sends one datagram of a message.
    std::function<void(const Sending& sending, const mad::Mad& mad)> send;
    // Sends a reply to the sender of a datagram.
    std::function<void(uint32_t device_index, const mad::Mad& mad, const Correspondent& to)> reply;
    // Sends an ABORT for an agent's message that took too long, to the message's sender.
    std::function<void(uint32_t transaction, const roce::Address& to, const mad::Mad& mad)> abort;
    // Called when the message has arrived, or (false) was given up after its retries. `first`: its first
    // datagram.
    std::function<void(const Sending& sending, const mad::Mad& first, bool arrived)> on_sent;
    // Called after messages have ended: there may be room for more, also at other ports of the user.
    std::function<void()> on_room;
  };
  LongMessages(EventLoop& loop, uid_t own, Surroundings surroundings);
  LongMessages(const LongMessages&) = delete;
  LongMessages& operator=(const LongMessages&) = delete;

  // Whether the user may send one more message by that port now.
  bool has_room(uint64_t port, uid_t user) const;
  // Starts to send a message. REQUIRES: as RmppSender. False: a message with its transaction is being sent
  bool send(Sending sending, std::vector<std::byte> message);

  // Handles an ACK, STOP or ABORT for a link. False: it belongs to no message that is sent from here.
  bool on_control(uint32_t device_index, const mad::Mad& mad, const Correspondent& from);
  // Handles a segment for an agent. Returns the message if this segment completes it, else an empty one.
  std::vector<std::byte> on_segment(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from);
  // Whether the segment belongs to a message whose reception has begun.
  bool knows(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from) const;
  void forget(const MadAgent& agent, const mad::Mad& abort, const Correspondent& from);

  // Returns the message that `answer` answers while it is still being sent, and stops sending it. awaits()
  // only tells whether there is one.
  std::optional<Sending> answered(uint32_t device_index, const mad::Mad& answer, const roce::Address& from);
  bool awaits(uint32_t device_index, const mad::Mad& answer, const roce::Address& from) const {
    return find(device_index, answer, from) != sendings_.end();
  }

  void remove_port(uint64_t port);
  void remove_agent(uint64_t port, uint32_t agent);
  // Drops messages that are being received for the agent with this transaction number.
  void forget_receiver(uint32_t transaction) { receiver_.forget_owner(transaction); }

 private:
  struct Entry {
    Sending sending;
    mad::RmppSender sender;
    bool is_pumped = false;
  };
  struct Load {
    size_t bytes = 0;
    size_t messages = 0;
  };
  using Map = std::map<mad::RmppKey, Entry>;

  void pump_later(const mad::RmppKey& key, Entry& entry);
  void pump(const mad::RmppKey& key);
  void settle(Map::iterator entry);
  // Returns the message that this answers, or the end.
  Map::const_iterator find(uint32_t device_index, const mad::Mad& answer, const roce::Address& from) const;
  Map::iterator erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_if(IsIt is_it);
  void on_timer();
  void arm();

  EventLoop& loop_;
  const Surroundings surroundings_;
  Quota quota_;  // blocks of messages that are being sent
  Map sendings_;
  std::map<uint64_t, Load> load_of_port_;
  mad::RmppReceiver receiver_;
  DeadlineTimer timer_{loop_, [this] { on_timer(); }};
};

}  // namespace verbena::agent
