// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/mad/rmpp.h"

namespace verbena::mad {

// Sends one message in segments, within the receiver's window. Retransmits from the first missing segment
// after a timeout, or at once if an ACK shows a gap. Each new ACK resets the retry counter. Pure: returns the
// datagrams to send, and gets the time as a parameter.
class RmppSender {
 public:
  // The maximum wait for an ACK; the caller may choose less.
  static constexpr Duration kLongestWait = std::chrono::seconds(2);

  // `message`: the whole message, beginning with the headers for its segments. `wait`: how long to wait for
  // an ACK before a retransmission; 0 means kLongestWait. `retries`: the number of retransmissions without a
  // new ACK. REQUIRES: the message's class has RMPP, its RMPP header is included, and it has at most
  // kMaxRmppBytes
  RmppSender(std::vector<std::byte> message, Duration wait, uint32_t retries, TimePoint now);

  // Returns the next segment to send; nullopt if no segment may be sent before another ACK.
  std::optional<Mad> next();
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

}  // namespace verbena::mad
