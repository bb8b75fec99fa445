// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/time.h"
#include "management/mad/rmpp.h"

namespace verbena::mad {

// Reassembles segmented messages. Pure: returns the datagrams to send, and gets the time as a parameter.
//
// Anybody may send segments, so memory is allocated as segments arrive, never by the announced length. There
// are limits per message, per sender and in total. At the total limit, a message that has not grown for
// kStalled is dropped. If there is none, the message of the segment that has just arrived is refused.
class RmppReceiver {
 public:
  struct Limits {
    size_t message = kMaxRmppBytes;
    size_t bytes_of_one = size_t{12} << 20;  // memory of one address's incomplete messages
    size_t bytes = size_t{32} << 20;
    size_t messages_of_one = 64;
    size_t messages = 512;
    size_t remembered = 1024;  // completed messages whose ACK can be repeated for a sender that missed it
  };
  // The number of segments that a sender may send beyond the acknowledged ones.
  static constexpr uint32_t kWindow = 64;
  static constexpr Duration kLongest = std::chrono::seconds(40);  // maximum duration of a message
  // How long the ACK of a completed message can be repeated.
  static constexpr Duration kRemembered = std::chrono::seconds(10);
  // A message that has not grown for this time counts as stalled. Senders wait less for an ACK
  // (RmppSender::kLongestWait).
  static constexpr Duration kStalled = std::chrono::seconds(5);

  RmppReceiver() = default;
  explicit RmppReceiver(const Limits& limits) : limits_(limits) {}

  // The result of on_data(): a datagram to send back, if any, and the message if it is complete.
  struct Outcome {
    std::optional<Mad> reply;
    std::vector<std::byte> message;  // the complete message with its headers; empty if segments are missing
  };
  // Handles a DATA segment to `owner` (RmppKey::owner) from address `from`. REQUIRES: is_rmpp(segment) and
  // rmpp_type(segment) is kData
  Outcome on_data(uint64_t owner, const roce::Address& from, const Mad& segment, TimePoint now);
  // Whether the message is in progress, or was completed at most kRemembered ago.
  bool knows(const RmppKey& key) const { return going_.contains(key) || done_.contains(key); }
  // Drops an incomplete message. Called when its sender has given up.
  void forget(const RmppKey& key);
  // Drops all incomplete messages to `owner`. Called when the owner is gone.
  void forget_owner(uint64_t owner);

  // Returns when to call take_due() next; kNever if nothing is pending.
  TimePoint deadline() const;
  // A message that took longer than kLongest and was dropped, with the ABORT to send to its sender.
  struct Due {
    RmppKey key;
    Mad reply;
  };
  // Drops one message that took longer than kLongest. Returns nullopt if there is none; call it until then.
  std::optional<Due> take_due(TimePoint now);

  size_t messages() const { return going_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Message {
    Mad first;
    std::vector<std::byte> bytes;   // data received in order
    std::map<uint32_t, Mad> early;  // segments received out of order
    uint32_t segment = 0;           // last one in order
    uint32_t acknowledged = 0;
    uint32_t window = 1;
    bool is_whole = false;
    size_t charged = 0;
    TimePoint began{};
    TimePoint grew{};
  };
  struct Share {
    size_t bytes = 0;
    size_t messages = 0;
  };
  struct Whole {
    uint32_t segment;
    uint32_t window;
  };
  using Map = std::map<RmppKey, Message>;

  Outcome begin(const RmppKey& key, const Mad& segment, TimePoint now);
  Outcome go_on(Map::iterator entry, const Mad& segment, TimePoint now);
  Outcome finish(Map::iterator entry);
  bool has_room(const RmppKey& key, TimePoint now);
  bool drop_stalled(TimePoint now);
  void charge(const RmppKey& key, Message& message);
  void erase(Map::iterator entry);
  static void append(Message& message, const Mad& segment);

  Limits limits_{};
  Map going_;
  std::set<std::pair<TimePoint, RmppKey>> by_begin_;
  std::map<std::array<uint8_t, 16>, Share> shares_;  // by the sender's address
  size_t bytes_ = 0;
  std::map<RmppKey, Whole> done_;
  std::deque<std::pair<TimePoint, RmppKey>> done_order_;
};

}  // namespace verbena::mad
