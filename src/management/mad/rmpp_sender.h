// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/mad/rmpp.h"

namespace verbena::mad {

// A message on its way to another, segment by segment, as far as the receiver's window goes. What is not
// acknowledged in time is sent again from the first segment that lacks, and at once where an acknowledgement
// says that one lacks; each new acknowledgement begins the count of retries again. Pure: what it wants sent
// it hands out, and time is told.
class RmppSender {
 public:
  // How long an acknowledgement may take, if the sender of the message does not say less.
  static constexpr Duration kLongestWait = std::chrono::seconds(2);

  // The whole message, with the headers that its segments are to have. `wait`: for acknowledgements; 0: as
  // long as may be. REQUIRES: of a class that has RMPP; header of RMPP included; at most kMaxRmppBytes
  RmppSender(std::vector<std::byte> message, Duration wait, uint32_t retries, TimePoint now);

  // A segment that may be sent now, in order; nothing: first there must be an acknowledgement.
  std::optional<Mad> next();
  bool has_next() const { return sent_ < segments_ && sent_ < window_; }

  enum class State : uint8_t { kGoing, kDone, kRefused, kGivenUp };
  State state() const { return state_; }
  // An ACK, STOP or ABORT for it. Answers what is to be sent to the one that sent that, if anything.
  std::optional<Mad> on_control(const Mad& mad, TimePoint now);

  TimePoint deadline() const { return state_ == State::kGoing ? deadline_ : kNever; }
  // REQUIRES: the deadline is past
  void on_deadline(TimePoint now);

  size_t bytes() const { return message_.size(); }
  uint32_t segments() const { return segments_; }
  // The first datagram of the message.
  Mad first() const { return segment(1); }

 private:
  Mad segment(uint32_t number) const;
  uint32_t payload_of(uint32_t number) const;
  Mad refuse(const Mad& mad, RmppStatus status);

  const std::vector<std::byte> message_;
  const size_t data_at_;
  const size_t data_bytes_;  // of a segment
  const uint32_t segments_;
  const Duration wait_;
  const uint32_t retries_;
  uint32_t sent_ = 0;
  uint32_t acknowledged_ = 0;
  uint32_t window_ = 1;        // the last segment that may be sent
  uint32_t went_back_to_ = 0;  // at an acknowledgement, for the last time
  uint32_t retries_left_;
  TimePoint deadline_;
  State state_ = State::kGoing;
};

}  // namespace verbena::mad
