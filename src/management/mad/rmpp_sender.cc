// SPDX-License-Identifier: Apache-2.0
#include "management/mad/rmpp_sender.h"

#include <algorithm>
#include <utility>

namespace verbena::mad {
namespace {

uint32_t count_segments(size_t bytes, size_t data_at, size_t data_bytes) {
  const size_t data = bytes > data_at ? bytes - data_at : 0;
  return static_cast<uint32_t>(std::max<size_t>((data + data_bytes - 1) / data_bytes, 1));
}

}  // namespace

RmppSender::RmppSender(std::vector<std::byte> message, Duration wait, uint32_t retries, TimePoint now)
    : message_(std::move(message)),
      data_at_(rmpp_data_offset(static_cast<uint8_t>(message_[kClassAt]))),
      data_bytes_(kMadBytes - data_at_),
      segments_(count_segments(message_.size(), data_at_, data_bytes_)),
      wait_(wait == Duration::zero() ? kLongestWait : std::min(wait, kLongestWait)),
      retries_(retries),
      retries_left_(retries),
      deadline_(now + wait_) {}

// The PayloadLength field: in the first segment the whole length, in the last one its own, both including the
// class header of each segment (13.6.2.2).
uint32_t RmppSender::payload_of(uint32_t number) const {
  const auto own_header = static_cast<uint32_t>(data_at_ - kRmppDataAt);
  const auto data = static_cast<uint32_t>(message_.size() > data_at_ ? message_.size() - data_at_ : 0);
  if (number == segments_) {
    return own_header + data - (segments_ - 1) * static_cast<uint32_t>(data_bytes_);
  }
  return number == 1 ? segments_ * own_header + data : 0;
}

Mad RmppSender::segment(uint32_t number) const {
  Mad mad;
  std::copy_n(message_.begin(), std::min(message_.size(), data_at_), mad.bytes.begin());
  const size_t from = data_at_ + (number - 1) * data_bytes_;
  if (from < message_.size()) {
    std::copy_n(message_.begin() + static_cast<ptrdiff_t>(from),
                std::min(message_.size() - from, data_bytes_), mad.at(data_at_));
  }
  mad.set_u8(kRmppVersionAt, kRmppVersion);
  mad.set_u8(kRmppTypeAt, static_cast<uint8_t>(RmppType::kData));
  mad.set_u8(kRmppFlagsAt, static_cast<uint8_t>(kRmppActive | (number == 1 ? kRmppFirst : 0) |
                                                (number == segments_ ? kRmppLast : 0)));
  mad.set_u8(kRmppStatusAt, 0);
  mad.set(kRmppSegmentAt, number);
  mad.set(kRmppLengthAt, payload_of(number));
  return mad;
}

std::optional<Mad> RmppSender::next() {
  if (state_ != State::kGoing || !has_next()) return std::nullopt;
  return segment(++sent_);
}

Mad RmppSender::refuse(const Mad& mad, RmppStatus status) {
  state_ = State::kRefused;
  return rmpp_refusal(mad, RmppType::kAbort, status);
}

std::optional<Mad> RmppSender::on_control(const Mad& mad, TimePoint now) {
  if (state_ != State::kGoing) return std::nullopt;
  if (mad.u8(kRmppVersionAt) != kRmppVersion) return refuse(mad, RmppStatus::kBadVersion);
  const auto status = static_cast<RmppStatus>(mad.u8(kRmppStatusAt));
  const RmppType type = rmpp_type(mad);
  if (type == RmppType::kStop || type == RmppType::kAbort) {
    const bool is_legal = type == RmppType::kStop
                              ? status == RmppStatus::kNoResources
                              : status >= RmppStatus::kTooLong && status <= RmppStatus::kLast;
    if (!is_legal) return refuse(mad, RmppStatus::kIllegalStatus);
    state_ = State::kRefused;
    return std::nullopt;
  }
  if (type != RmppType::kAck) return refuse(mad, RmppStatus::kBadType);
  if (status != RmppStatus::kNormal) return refuse(mad, RmppStatus::kIllegalStatus);
  const auto segment = mad.get<uint32_t>(kRmppSegmentAt);
  const auto window = mad.get<uint32_t>(kRmppLengthAt);
  if (window < segment) return refuse(mad, RmppStatus::kWindowTooSmall);
  if (segment > segments_ || segment > window_) return refuse(mad, RmppStatus::kSegmentTooBig);
  if (window < window_ || segment < acknowledged_) return std::nullopt;  // outdated
  // An ACK that neither moves the window nor covers all sent segments shows a loss: go back once for it.
  if (window == window_ && segment < sent_ && segment < segments_ &&
      std::exchange(went_back_to_, segment) != segment) {
    sent_ = segment;
  }
  window_ = window;
  if (segment > acknowledged_) {
    acknowledged_ = segment;
    sent_ = std::max(sent_, segment);  // the ACK may be for an earlier transmission
    retries_left_ = retries_;
    deadline_ = now + wait_;
  }
  if (acknowledged_ == segments_) state_ = State::kDone;
  return std::nullopt;
}

void RmppSender::on_deadline(TimePoint now) {
  if (state_ != State::kGoing) return;
  if (retries_left_ == 0) {
    state_ = State::kGivenUp;
    return;
  }
  --retries_left_;
  sent_ = acknowledged_;
  deadline_ = now + wait_;
}

}  // namespace verbena::mad
