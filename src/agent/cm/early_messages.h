// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"

namespace verbena::agent {

// Keeps messages for listeners and connections that do not exist yet, for 100 ms or longer, because they may
// appear soon. Listeners: two programs may agree on a port over another connection (perftest's -R). One then
// calls listen and the other connect at the same time. In the kernel the listener wins this race, because its
// calls are answered faster than by this agent. A late refusal does no harm, while perftest fails at an early
// one. Connections: after an agent was killed, its clients restore their listeners and connections with the
// next agent. If a peer ends a connection meanwhile, it must not be told that the connection is unknown.
// Otherwise the program would never learn of the end. For the agent's thread.
class EarlyMessages {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);  // minimum wait for a listener
  static constexpr size_t kMax = 64;                                     // maximum number of messages

  struct Message {
    cm::Mad mad;
    cm::Arrival arrival;
    TimePoint came;                           // when the message arrived
    TimePoint deadline;                       // when to process the message again; it may be kept again then
    uint64_t number = 0;                      // larger than those of all messages that were kept before
    std::optional<uint64_t> service_id = {};  // that of a REQ or SIDR_REQ
  };

  // Returns whether another message of this sender may be kept. `waited` is how long the message has waited
  // already. From kPatience on, a message may be kept only if fewer than half of kMax are kept. If all places
  // are taken, a new message gets a place only if another sender has more messages than this one.
  bool has_room(const roce::Address& sender, Duration waited) const;
  // Keeps a message, unless the same bytes from the same address are kept already. Returns a message that is
  // not kept any more, to be processed now: the oldest of the sender with the most, if all places were taken.
  // REQUIRES: `mad` is a whole MAD; has_room() is true; deadlines never decrease
  std::optional<Message> keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline);
  // Returns the earliest deadline, or kNever if no message is kept.
  TimePoint deadline() const { return messages_.empty() ? kNever : messages_.front().message.deadline; }
  // Removes and returns the first message if its deadline has passed, otherwise returns nullopt.
  std::optional<Message> take_overdue(TimePoint now);
  // Drops a kept REQ if `mad` is the REJ by which its sender gives it up. Called for each arriving datagram.
  void hear_rejection(ConstBytes mad, const cm::Arrival& arrival);
  // Removes and returns the first message whose number is at most `last` and for which counts() is true,
  // otherwise returns nullopt. Called after a listener or a connection has appeared.
  std::optional<Message> take(uint64_t last, const std::function<bool(const Message&)>& counts);
  // Returns the number of the message that was kept last, or 0 if none ever was.
  uint64_t last_number() const { return last_number_; }

 private:
  // The number of messages by sender, so that a datagram to a full table compares no two messages.
  using Counts = std::map<decltype(roce::Address::bytes), size_t>;
  struct Kept {
    Message message;
    Counts::iterator of_sender;
  };
  using Messages = std::deque<Kept>;
  // Returns the oldest message of the sender with the most messages. REQUIRES: a message is kept
  Messages::const_iterator oldest_of_most() const;
  void uncount(const Kept& kept);
  Message remove(Messages::const_iterator kept);

  Messages messages_;
  Counts counts_;
  uint64_t last_number_ = 0;
};

// Detects forged messages of connection management that come from an address of this host. Every program of
// this host can send a datagram from such an address to QP1, and so forge messages of any connection whose
// IDs it knows. Only the agent may send such messages here, so one that it has not sent is forged.
//
// Keeps a keyed digest of each sent message until the message arrives here. There is room for 32,768 digests,
// in sets of 8. A new digest replaces the oldest of its set, whose message then counts as forged. For one
// thread.
class OwnMessages {
 public:
  explicit OwnMessages(uint64_t secret) : secret_(secret), digests_(kSets * kWays) {}

  // Records a message that the agent is sending.
  void said(ConstBytes mad);
  // Called for each message that arrives from this host. Returns false if the message is forged: its digest
  // is not stored. Removes the digest, so a message of the agent that arrives a second time counts as forged.
  bool heard(ConstBytes mad);

 private:
  static constexpr size_t kSets = 4096;  // a power of two
  static constexpr size_t kWays = 8;

  uint64_t digest_of(ConstBytes mad) const;
  uint64_t* set_of(uint64_t digest) { return &digests_[(digest & (kSets - 1)) * kWays]; }

  const uint64_t secret_;
  std::vector<uint64_t> digests_;  // each set: the oldest comes first, and is replaced first; 0: free
};

}  // namespace verbena::agent
