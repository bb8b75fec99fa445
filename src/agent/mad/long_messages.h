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

// The messages of several datagrams (RMPP) that programs send, and those that come for them: cuts and puts
// together, acknowledges and repeats, as the kernel does for its users. Of the agent's thread.
class LongMessages {
 public:
  // One that is being sent, and by whom.
  struct Sending {
    uint64_t port = 0;  // 0: the fabric's own answer
    uid_t user = 0;
    protocol::UserMad header{};  // as the program sent it
    uint32_t device_index = 0;
    uint16_t lid = 0;                 // that it goes to
    std::optional<Correspondent> to;  // nothing: there is no way to it
  };
  struct Surroundings {
    // One datagram, on its way to there.
    std::function<void(const Sending& sending, const mad::Mad& mad)> send;
    // What goes back to where a datagram came from.
    std::function<void(uint32_t device_index, const mad::Mad& mad, const Correspondent& to)> reply;
    // The same to where a message for an agent came from that has taken too long.
    std::function<void(uint32_t transaction, const roce::Address& to, const mad::Mad& mad)> abort;
    // All of it has arrived there, or (false) it was given up after its retries. Its first datagram.
    std::function<void(const Sending& sending, const mad::Mad& first, bool arrived)> on_sent;
    // There may be room again for what is to be sent.
    std::function<void()> on_room;
  };
  LongMessages(EventLoop& loop, uid_t own, Surroundings surroundings);
  LongMessages(const LongMessages&) = delete;
  LongMessages& operator=(const LongMessages&) = delete;

  // Whether the user may send one more by that port now.
  bool has_room(uint64_t port, uid_t user) const;
  // REQUIRES: as RmppSender does. False: it is on its way already, by its transaction.
  bool send(Sending sending, std::vector<std::byte> message);

  // An ACK, STOP or ABORT has come for a link. False: it is about nothing that is sent from here.
  bool on_control(uint32_t device_index, const mad::Mad& mad, const Correspondent& from);
  // A segment has come for an agent. Answers the message that is whole with it.
  std::vector<std::byte> on_segment(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from);
  // Whether it is of a message that has begun to come.
  bool knows(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from) const;
  void forget(const MadAgent& agent, const mad::Mad& abort, const Correspondent& from);

  // The request that a message answers while it is still being sent: it need not be any more. Or only
  // whether there is one.
  std::optional<Sending> answered(uint32_t device_index, const mad::Mad& answer, const roce::Address& from);
  bool awaits(uint32_t device_index, const mad::Mad& answer, const roce::Address& from) const {
    return find(device_index, answer, from) != sendings_.end();
  }

  void remove_port(uint64_t port);
  void remove_agent(uint64_t port, uint32_t agent);
  // No more messages for it.
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
  // The one that wants this answer, or the end.
  Map::const_iterator find(uint32_t device_index, const mad::Mad& answer, const roce::Address& from) const;
  Map::iterator erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_if(IsIt is_it);
  void on_timer();
  void arm();

  EventLoop& loop_;
  const Surroundings surroundings_;
  Quota quota_;  // in blocks of what is being sent
  Map sendings_;
  std::map<uint64_t, Load> load_of_port_;
  mad::RmppReceiver receiver_;
  DeadlineTimer timer_{loop_, [this] { on_timer(); }};
};

}  // namespace verbena::agent
