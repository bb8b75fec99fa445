// SPDX-License-Identifier: Apache-2.0
#include "management/mad/rmpp.h"

#include <algorithm>
#include <iterator>

namespace verbena::mad {

namespace {

constexpr size_t kAdministrationData = 56;
constexpr size_t kDeviceData = 64;
constexpr size_t kVendorData = 40;

// Copies the headers of the answered datagram with the response bit inverted; the rest is zero.
Mad begin(const Mad& about, RmppType type) {
  const uint8_t management_class = about.u8(kClassAt);
  const size_t headers = has_rmpp(management_class) ? rmpp_data_offset(management_class) : kRmppDataAt;
  Mad mad;
  std::copy_n(about.bytes.begin(), headers, mad.bytes.begin());
  mad.set_u8(kMethodAt, about.u8(kMethodAt) ^ kMethodResponse);
  mad.set_u8(kRmppVersionAt, kRmppVersion);
  mad.set_u8(kRmppTypeAt, static_cast<uint8_t>(type));
  mad.set_u8(kRmppFlagsAt, static_cast<uint8_t>((about.u8(kRmppFlagsAt) & 0xf8) | kRmppActive));
  mad.set_u8(kRmppStatusAt, 0);
  return mad;
}

uint32_t count_segments(size_t bytes, size_t data_at, size_t data_bytes) {
  const size_t data = bytes > data_at ? bytes - data_at : 0;
  return static_cast<uint32_t>(std::max<size_t>((data + data_bytes - 1) / data_bytes, 1));
}

constexpr size_t kOfMessage = 1024;                   // memory per message without its data
constexpr size_t kOfEarlySegment = sizeof(Mad) + 64;  // with its map node

RmppReceiver::Outcome refuse(const Mad& segment, RmppType type, RmppStatus status) {
  return {rmpp_refusal(segment, type, status), {}};
}

bool is_last(const Mad& segment) {
  return (segment.u8(kRmppFlagsAt) & kRmppLast) != 0;
}

}  // namespace

size_t rmpp_data_offset(uint8_t management_class) {
  if (management_class == kClassSubnAdministration) return kAdministrationData;
  return is_vendor_with_oui(management_class) ? kVendorData : kDeviceData;
}

RmppType rmpp_type(const Mad& mad) {
  return static_cast<RmppType>(mad.u8(kRmppTypeAt));
}

RmppKey rmpp_key(uint64_t owner, const roce::Address& other, const Mad& mad) {
  RmppKey key;
  key.owner = owner;
  key.other = other;
  key.transaction = mad.get<uint64_t>(kTransactionAt);
  key.management_class = mad.u8(kClassAt);
  key.class_version = mad.u8(kClassVersionAt);
  key.method = mad.u8(kMethodAt);
  return key;
}

RmppKey rmpp_key_answered_by(uint64_t owner, const roce::Address& other, const Mad& mad) {
  RmppKey key = rmpp_key(owner, other, mad);
  key.method ^= kMethodResponse;
  return key;
}

Mad rmpp_ack(const Mad& about, uint32_t segment, uint32_t window) {
  Mad mad = begin(about, RmppType::kAck);
  mad.set(kRmppSegmentAt, segment);
  mad.set(kRmppLengthAt, window);
  return mad;
}

Mad rmpp_refusal(const Mad& about, RmppType type, RmppStatus status) {
  Mad mad = begin(about, type);
  mad.set_u8(kRmppStatusAt, static_cast<uint8_t>(status));
  mad.set(kRmppSegmentAt, uint32_t{0});
  mad.set(kRmppLengthAt, uint32_t{0});
  return mad;
}

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

RmppReceiver::Outcome RmppReceiver::on_data(uint64_t owner, const roce::Address& from, const Mad& segment,
                                            TimePoint now) {
  if (segment.u8(kRmppVersionAt) != kRmppVersion) {
    return refuse(segment, RmppType::kAbort, RmppStatus::kBadVersion);
  }
  if (segment.u8(kRmppStatusAt) != 0) return refuse(segment, RmppType::kAbort, RmppStatus::kIllegalStatus);
  const auto number = segment.get<uint32_t>(kRmppSegmentAt);
  const bool is_first = (segment.u8(kRmppFlagsAt) & kRmppFirst) != 0;
  if (is_first != (number == 1)) return refuse(segment, RmppType::kAbort, RmppStatus::kBadSegment);
  const RmppKey key = rmpp_key(owner, from, segment);
  if (const auto done = done_.find(key); done != done_.end()) {
    return {rmpp_ack(segment, done->second.segment, done->second.window), {}};
  }
  const auto found = going_.find(key);
  if (found != going_.end()) return go_on(found, segment, now);
  // For an unknown message, only the first segment is handled.
  return number == 1 ? begin(key, segment, now) : Outcome();
}

bool RmppReceiver::has_room(const RmppKey& key, TimePoint now) {
  const Share& share = shares_[key.other.bytes];
  if (share.messages > limits_.messages_of_one || share.bytes > limits_.bytes_of_one) return false;
  while (going_.size() > limits_.messages || bytes_ > limits_.bytes) {
    if (!drop_stalled(now)) return false;
  }
  return true;
}

// In order of their start, since stalled messages are mostly old.
bool RmppReceiver::drop_stalled(TimePoint now) {
  for (const auto& [began, key] : by_begin_) {
    const auto found = going_.find(key);
    if (now - found->second.grew < kStalled) continue;
    erase(found);
    return true;
  }
  return false;
}

RmppReceiver::Outcome RmppReceiver::begin(const RmppKey& key, const Mad& segment, TimePoint now) {
  const auto entry = going_.try_emplace(key).first;
  Message& message = entry->second;
  message.first = segment;
  message.began = message.grew = now;
  by_begin_.emplace(now, key);
  ++shares_[key.other.bytes].messages;
  append(message, segment);
  charge(key, message);
  if (message.is_whole) return finish(entry);
  if (!has_room(key, now)) {
    erase(entry);
    return refuse(segment, RmppType::kStop, RmppStatus::kNoResources);
  }
  message.acknowledged = 1;
  message.window += kWindow;
  return {rmpp_ack(segment, 1, message.window), {}};
}

RmppReceiver::Outcome RmppReceiver::go_on(Map::iterator entry, const Mad& segment, TimePoint now) {
  Message& message = entry->second;
  const auto number = segment.get<uint32_t>(kRmppSegmentAt);
  if (number > message.window) return {};
  // The sender has missed our ACK.
  if (number <= message.acknowledged) return {rmpp_ack(segment, message.segment, message.window), {}};
  if (number <= message.segment || !message.early.try_emplace(number, segment).second) return {};
  message.grew = now;
  while (!message.early.empty() && message.early.begin()->first == message.segment + 1 && !message.is_whole) {
    append(message, message.early.begin()->second);
    message.early.erase(message.early.begin());
  }
  charge(entry->first, message);
  if (message.bytes.size() > limits_.message || !has_room(entry->first, now)) {
    // Not dropped by has_room(): the message has just grown, so it is not stalled.
    erase(entry);
    return refuse(segment, RmppType::kStop, RmppStatus::kNoResources);
  }
  if (message.is_whole) return finish(entry);
  // A new gap is reported at once. (The kernel ignores that and retransmits after its timeout.)
  const bool is_new_gap = message.early.size() == 1 && number > message.segment;
  // The window moves when half of it is used: the sender need not stop, and a lost segment shows as a gap.
  const bool moves_on = message.window - message.segment <= kWindow / 2;
  if (!moves_on && !is_new_gap) return {};
  message.acknowledged = message.segment;
  if (moves_on) message.window = message.segment + kWindow;
  return {rmpp_ack(segment, message.segment, message.window), {}};
}

// The last segment contains its length; an impossible length counts as a full segment, as in the kernel.
void RmppReceiver::append(Message& message, const Mad& segment) {
  ++message.segment;
  const size_t data_at = rmpp_data_offset(segment.u8(kClassAt));
  const size_t from = message.segment == 1 ? 0 : data_at;
  size_t to = kMadBytes;
  message.is_whole = is_last(segment);
  if (message.is_whole) {
    const size_t says = kRmppDataAt + segment.get<uint32_t>(kRmppLengthAt);
    if (says >= data_at && says <= kMadBytes) to = says;
  }
  message.bytes.insert(message.bytes.end(), segment.bytes.begin() + static_cast<ptrdiff_t>(from),
                       segment.bytes.begin() + static_cast<ptrdiff_t>(to));
}

RmppReceiver::Outcome RmppReceiver::finish(Map::iterator entry) {
  Message& message = entry->second;
  Outcome outcome{rmpp_ack(message.first, message.segment, message.window), std::move(message.bytes)};
  if (done_.size() >= limits_.remembered) {
    done_.erase(done_order_.front().second);
    done_order_.pop_front();
  }
  done_.emplace(entry->first, Whole{message.segment, std::max(message.window, message.segment)});
  done_order_.emplace_back(message.grew + kRemembered, entry->first);
  erase(entry);
  return outcome;
}

void RmppReceiver::charge(const RmppKey& key, Message& message) {
  const size_t now = kOfMessage + message.bytes.capacity() + message.early.size() * kOfEarlySegment;
  Share& share = shares_[key.other.bytes];
  share.bytes += now - message.charged;
  bytes_ += now - message.charged;
  message.charged = now;
}

void RmppReceiver::erase(Map::iterator entry) {
  const Message& message = entry->second;
  const auto share = shares_.find(entry->first.other.bytes);
  share->second.bytes -= message.charged;
  bytes_ -= message.charged;
  if (--share->second.messages == 0) shares_.erase(share);
  by_begin_.erase({message.began, entry->first});
  going_.erase(entry);
}

void RmppReceiver::forget(const RmppKey& key) {
  if (const auto found = going_.find(key); found != going_.end()) erase(found);
}

void RmppReceiver::forget_owner(uint64_t owner) {
  for (auto entry = going_.begin(); entry != going_.end();) {
    const auto next = std::next(entry);
    if (entry->first.owner == owner) erase(entry);
    entry = next;
  }
}

TimePoint RmppReceiver::deadline() const {
  const TimePoint going = by_begin_.empty() ? kNever : by_begin_.begin()->first + kLongest;
  return done_order_.empty() ? going : std::min(going, done_order_.front().first);
}

std::optional<RmppReceiver::Due> RmppReceiver::take_due(TimePoint now) {
  while (!done_order_.empty() && done_order_.front().first <= now) {
    done_.erase(done_order_.front().second);
    done_order_.pop_front();
  }
  if (by_begin_.empty() || by_begin_.begin()->first + kLongest > now) return std::nullopt;
  const auto entry = going_.find(by_begin_.begin()->second);
  Due due{entry->first, rmpp_refusal(entry->second.first, RmppType::kAbort, RmppStatus::kTooLong)};
  erase(entry);
  return due;
}

}  // namespace verbena::mad
