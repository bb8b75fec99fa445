// SPDX-License-Identifier: Apache-2.0
#include "management/mad/rmpp_receiver.h"

#include <algorithm>
#include <iterator>

namespace verbena::mad {
namespace {

constexpr size_t kOfMessage = 1024;                   // memory per message without its data
constexpr size_t kOfEarlySegment = sizeof(Mad) + 64;  // with its map node

RmppReceiver::Outcome refuse(const Mad& segment, RmppType type, RmppStatus status) {
  return {rmpp_refusal(segment, type, status), {}};
}

bool is_last(const Mad& segment) {
  return (segment.u8(kRmppFlagsAt) & kRmppLast) != 0;
}

}  // namespace

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
