// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/mad/agents.h"
#include "base/quota.h"
#include "control/protocol/mad_messages.h"
#include "management/mad/rmpp.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Sends and receives messages of several datagrams (RMPP) for programs. Splits, reassembles, acknowledges and
// retransmits the messages, as the kernel does for its users. For the agent's thread.
class LongMessages {
 public:
  // A message that is being sent, and its sender.
  struct Sending {
    uint64_t port = 0;  // 0: the sender is the agent's simulated subnet, not a program
    uid_t user = 0;
    protocol::UserMad header{};  // the header of the program's datagram
    uint32_t device_index = 0;
    uint16_t lid = 0;                 // of the destination
    std::optional<Correspondent> to;  // nullopt: there is no path to the destination
  };
  // Sends datagrams, and learns how messages end. Implemented by MadDispatcher.
  class Host {
   public:
    virtual ~Host() = default;
    // Sends one datagram of a message.
    virtual void send_segment(const Sending& sending, const mad::Mad& segment) = 0;
    // Sends a reply to the sender of a datagram.
    virtual void reply(uint32_t device_index, const mad::Mad& mad, const Correspondent& to) = 0;
    // Sends an ABORT to the sender of a message whose reception took too long. `transaction`:
    // MadAgent::transaction of the message's receiver.
    virtual void abort(uint32_t transaction, const roce::Address& to, const mad::Mad& mad) = 0;
    // Called when sending has ended. `arrived` is true if the receiver acknowledged the whole message, false
    // if the message was given up after its retries. Not called if the receiver refused the message (STOP or
    // ABORT). `first` is the message's first datagram.
    virtual void on_sent(const Sending& sending, const mad::Mad& first, bool arrived) = 0;
    // Called after the sending of messages has ended: any port may have room for more.
    virtual void resume_all() = 0;
  };
  // `own`: the agent's own user. REQUIRES: the references outlive this object
  LongMessages(EventLoop& loop, uid_t own, Host& host)
      : loop_(loop), host_(host), quota_(std::make_shared<Quota>(kBlocks, own)) {}

  // Returns whether a program of the user may send one more message by that port now.
  bool has_room(uint64_t port, uid_t user) const;
  // Counts the memory of a message that is not complete yet, until the share is destroyed.
  QuotaShare reserve(uid_t user, size_t bytes);
  // Starts to send a message, unless one with the same transaction ID, class and method is being sent to the
  // same destination. REQUIRES: `message` is valid for RmppSender
  void send(Sending sending, std::vector<std::byte> message);

  // Handles an ACK, STOP or ABORT that has arrived on a link. Returns false if the datagram belongs to no
  // message that is being sent.
  bool on_control(uint32_t device_index, const mad::Mad& mad, const Correspondent& from);
  // Handles a data segment for a MAD agent. Returns the message if it is complete now, else an empty vector.
  std::vector<std::byte> on_segment(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from);
  // Returns whether the segment belongs to a message whose reception has begun.
  bool knows(const MadAgent& agent, const mad::Mad& mad, const Correspondent& from) const;
  // Drops the partly received message that `abort` ends. Called for an ABORT from the message's sender.
  void forget(const MadAgent& agent, const mad::Mad& abort, const Correspondent& from);

  // Handles the answer to a request that is still being sent: stops the sending and returns the request.
  // Returns nullopt if `answer` belongs to no such request. awaits() returns whether `answer` belongs to such
  // a request, and changes nothing.
  std::optional<Sending> answered(uint32_t device_index, const mad::Mad& answer, const Correspondent& from);
  bool awaits(uint32_t device_index, const mad::Mad& answer, const Correspondent& from) const {
    return find(device_index, answer, from) != sendings_.end();
  }

  // Stop sending the messages of a port, or of one MAD agent of a port.
  void remove_port(uint64_t port);
  void remove_agent(uint64_t port, uint32_t agent);
  // Drops partly received messages for the MAD agent with this MadAgent::transaction.
  void forget_receiver(uint32_t transaction) { receiver_.forget_owner(transaction); }

 private:
  struct Entry {
    Entry(LongMessages& all, const mad::RmppKey& key, Sending from, std::vector<std::byte> message);

    Sending sending;
    mad::RmppSender sender;
    DeadlineTimer timer;
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
  // Returns the request that `answer` answers, or sendings_.end().
  Map::const_iterator find(uint32_t device_index, const mad::Mad& answer, const Correspondent& from) const;
  Map::iterator erase(Map::const_iterator entry);
  template <class IsIt>
  void remove_if(IsIt is_it);
  void on_deadline(const mad::RmppKey& key);
  void abort_overdue();

  EventLoop& loop_;
  Host& host_;
  // Memory for long messages of programs, in blocks of 64 KiB. A message counts while the agent reads it from
  // its file, and while it is being sent. Only root and the agent's own user may take the reserve
  // (base/quota.h).
  static constexpr Quota::Size kBlocks{.all = 1024, .reserve = 128};
  const std::shared_ptr<Quota> quota_;
  Map sendings_;
  std::map<uint64_t, Load> load_of_port_;
  mad::RmppReceiver receiver_;
  DeadlineTimer receiver_timer_{loop_, [this] { abort_overdue(); }};
};

}  // namespace verbena::agent
