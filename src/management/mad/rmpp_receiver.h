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

// The messages that come in segments, until they are whole. Pure: what it wants sent it hands out, and time
// is told.
//
// Anybody may send segments. So memory is taken as they come, and never as they promise; there is a limit to
// a message, to what one sender has begun, and to the whole. At the last one a message is given up that has
// not grown for longer than its sender would wait for us, or else the newest is refused.
class RmppReceiver {
 public:
  struct Limits {
    size_t message = kMaxRmppBytes;
    size_t bytes_of_one = size_t{12} << 20;  // of one sender
    size_t bytes = size_t{32} << 20;
    size_t messages_of_one = 64;
    size_t messages = 512;
    size_t remembered = 1024;  // that are whole, for senders who do not know it yet
  };
  // How many segments may be sent beyond what was acknowledged.
  static constexpr uint32_t kWindow = 64;
  static constexpr Duration kLongest = std::chrono::seconds(40);     // that a message may take
  static constexpr Duration kRemembered = std::chrono::seconds(10);  // that it was whole
  static constexpr Duration kStalled = std::chrono::seconds(5);

  RmppReceiver() = default;
  explicit RmppReceiver(const Limits& limits) : limits_(limits) {}

  struct Outcome {
    std::optional<Mad> reply;
    std::vector<std::byte> message;  // whole, or empty
  };
  // `segment` has come (RmppType::kData) for the owner, from that address.
  Outcome on_data(uint64_t owner, const roce::Address& from, const Mad& segment, TimePoint now);
  // Whether a segment is of a message that has begun or was whole a moment ago.
  bool knows(const RmppKey& key) const { return going_.contains(key) || done_.contains(key); }
  // The sender has given up.
  void forget(const RmppKey& key);
  void forget_owner(uint64_t owner);

  TimePoint deadline() const;
  // One that has taken too long, and is gone; what its sender is to be told.
  struct Due {
    RmppKey key;
    Mad reply;
  };
  std::optional<Due> take_due(TimePoint now);

  size_t messages() const { return going_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Message {
    Mad first;
    std::vector<std::byte> bytes;   // what has come in order
    std::map<uint32_t, Mad> early;  // what has come before its turn
    uint32_t segment = 0;           // the last in order
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
