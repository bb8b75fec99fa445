// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/time.h"
#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// The reliable multi-packet protocol (RMPP): messages of several datagrams (IBTA volume 1, 13.6). Each
// segment has the message's MAD header, an RMPP header, the class header and a part of the data. Where the
// specification leaves a choice, we do as the Linux kernel does, for interoperability
// (drivers/infiniband/core/mad_rmpp.c).

// Offsets in the RMPP header (13.6.2.1).
inline constexpr size_t kRmppVersionAt = 24;
inline constexpr size_t kRmppTypeAt = 25;
inline constexpr size_t kRmppFlagsAt = 26;  // the response time is in the upper five bits
inline constexpr size_t kRmppStatusAt = 27;
inline constexpr size_t kRmppSegmentAt = 28;
inline constexpr size_t kRmppLengthAt = 32;  // DATA: payload length; ACK: last segment of the window
inline constexpr size_t kRmppDataAt = 36;    // the class header counts as payload

inline constexpr uint8_t kRmppVersion = 1;
inline constexpr uint8_t kRmppActive = 0x01, kRmppFirst = 0x02, kRmppLast = 0x04;
enum class RmppType : uint8_t { kNone = 0, kData = 1, kAck = 2, kStop = 3, kAbort = 4 };

// The reason of a STOP or ABORT (table 49).
enum class RmppStatus : uint8_t {
  kNormal = 0,
  kNoResources = 1,  // the only status of a STOP
  kTooLong = 118,    // time limit exceeded; the lowest status of an ABORT
  kBadSegment = 120,
  kBadType = 121,
  kWindowTooSmall = 122,
  kSegmentTooBig = 123,
  kIllegalStatus = 124,
  kBadVersion = 125,
  kLast = 127,
};

// Our maximum length of a message, in bytes. (The kernel has no such limit.)
inline constexpr size_t kMaxRmppBytes = size_t{4} << 20;

// Returns the offset of a segment's data, after all headers. REQUIRES: has_rmpp(management_class)
size_t rmpp_data_offset(uint8_t management_class);

// Returns whether a datagram or message with these headers uses RMPP. REQUIRES: `mad` includes the RMPP
// header
inline bool is_rmpp(ConstBytes mad) {
  return has_rmpp(static_cast<uint8_t>(mad[kClassAt])) &&
         (static_cast<uint8_t>(mad[kRmppFlagsAt]) & kRmppActive) != 0;
}
inline bool is_rmpp(const Mad& mad) {
  return is_rmpp(ConstBytes(mad.bytes));
}
RmppType rmpp_type(const Mad& mad);

// Identifies the message that a datagram belongs to. A request and its answer have different keys, because
// only the answer's method has the response bit.
struct RmppKey {
  uint64_t owner = 0;     // the local sender or receiver of the message, as a number that the caller chooses
  roce::Address other{};  // the address of the other end; zero if the other end is local, too
  uint64_t transaction = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;

  auto tied() const {
    return std::tie(owner, other.bytes, transaction, management_class, class_version, method);
  }
  friend bool operator<(const RmppKey& one, const RmppKey& two) { return one.tied() < two.tied(); }
};
// Returns the key of the message that `mad` belongs to. REQUIRES: `mad` comes from the message's sender: it
// is a DATA segment or an ABORT
RmppKey rmpp_key(uint64_t owner, const roce::Address& other, const Mad& mad);
// Returns the key of the message that `mad` refers to. REQUIRES: `mad` comes from the message's receiver: it
// is an ACK, STOP or ABORT, or an answer to the request in the message
RmppKey rmpp_key_answered_by(uint64_t owner, const roce::Address& other, const Mad& mad);

// These functions build the datagram that answers `about`: rmpp_ack() an ACK, rmpp_refusal() a STOP or ABORT
// (`type`). `segment`: the number of the last segment received in order. `window`: the number of the last
// segment that the sender may send.
Mad rmpp_ack(const Mad& about, uint32_t segment, uint32_t window);
Mad rmpp_refusal(const Mad& about, RmppType type, RmppStatus status);

// Sends one message in segments, within the receiver's window. Retransmits from the first missing segment
// after a timeout, or at once if an ACK shows a gap. Each ACK of more segments resets the retry counter.
// Pure: returns the datagrams to send, and gets the time as a parameter.
class RmppSender {
 public:
  // The maximum wait for an ACK; the caller may choose less.
  static constexpr Duration kLongestWait = std::chrono::seconds(2);

  // `message`: the whole message. It begins with the headers, which every segment repeats. `wait`: how long
  // to wait for an ACK before a retransmission; 0 means kLongestWait. `retries`: the number of
  // retransmissions without a new ACK. REQUIRES: the message's class has RMPP, its RMPP header is included,
  // and it has at most kMaxRmppBytes
  RmppSender(std::vector<std::byte> message, Duration wait, uint32_t retries, TimePoint now);

  // Returns the next segment to send; nullopt if no segment may be sent before another ACK.
  std::optional<Mad> next();
  // Returns whether the receiver's window allows another segment.
  bool has_next() const { return sent_ < segments_ && sent_ < window_; }

  // kDone: all segments are acknowledged. kRefused: the receiver sent a STOP or ABORT, or an invalid answer.
  // kGivenUp: no ACK came after all retries.
  enum class State : uint8_t { kGoing, kDone, kRefused, kGivenUp };
  State state() const { return state_; }
  // Handles an ACK, STOP or ABORT for this message. Returns an ABORT to send if the datagram is invalid; else
  // nullopt. Afterwards next() may have segments to send.
  std::optional<Mad> on_control(const Mad& mad, TimePoint now);

  // Returns when to call on_deadline(); kNever unless the state is kGoing.
  TimePoint deadline() const { return state_ == State::kGoing ? deadline_ : kNever; }
  // Goes back to the first segment that is not acknowledged, or gives up after the last retry. REQUIRES:
  // deadline() has passed
  void on_deadline(TimePoint now);

  size_t bytes() const { return message_.size(); }
  uint32_t segments() const { return segments_; }
  // Returns the first segment of the message.
  Mad first() const { return segment(1); }

 private:
  Mad segment(uint32_t number) const;
  uint32_t payload_of(uint32_t number) const;
  Mad refuse(const Mad& mad, RmppStatus status);

  const std::vector<std::byte> message_;
  const size_t data_at_;
  const size_t data_bytes_;  // per segment
  const uint32_t segments_;
  const Duration wait_;
  const uint32_t retries_;
  uint32_t sent_ = 0;
  uint32_t acknowledged_ = 0;
  uint32_t window_ = 1;        // last segment that may be sent
  uint32_t went_back_to_ = 0;  // last ACK that caused a retransmission
  uint32_t retries_left_;
  TimePoint deadline_;
  State state_ = State::kGoing;
};

// Reassembles segmented messages. Pure: returns the datagrams to send, and gets the time as a parameter.
//
// Anybody may send segments, so memory is allocated as segments arrive, never by the announced length. There
// are limits per message, per sender and in total. At the total limit, a message that has not grown for
// kStalled is dropped. If no message is stalled, the message whose segment has just arrived is refused.
class RmppReceiver {
 public:
  struct Limits {
    size_t message = kMaxRmppBytes;          // maximum length of a message in bytes
    size_t bytes_of_one = size_t{12} << 20;  // memory of the incomplete messages from one address
    size_t bytes = size_t{32} << 20;         // memory of all incomplete messages
    size_t messages_of_one = 64;             // number of incomplete messages from one address
    size_t messages = 512;                   // number of all incomplete messages
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
  // Returns whether the message is in progress, or was completed at most kRemembered ago.
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
  // Drops one message that took longer than kLongest, and returns its key and the ABORT. Returns nullopt if
  // there is none. The caller repeats the call until the result is nullopt.
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
