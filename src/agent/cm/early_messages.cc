// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/early_messages.h"

#include <algorithm>
#include <cstring>

namespace verbena::agent {

size_t EarlyMessages::count(const roce::Address& sender) const {
  const auto is_its = [&](const Message& message) { return message.arrival.path.source == sender; };
  return static_cast<size_t>(std::ranges::count_if(messages_, is_its));
}

std::deque<EarlyMessages::Message>::const_iterator EarlyMessages::oldest_of_most() const {
  return std::ranges::max_element(messages_, {},
                                  [&](const Message& message) { return count(message.arrival.path.source); });
}

bool EarlyMessages::has_room(const roce::Address& sender, Duration waited) const {
  if (waited >= kPatience) return messages_.size() < kMax / 2;
  return messages_.size() < kMax || count(sender) < count(oldest_of_most()->arrival.path.source);
}

std::optional<EarlyMessages::Message> EarlyMessages::keep(ConstBytes mad, const cm::Arrival& arrival,
                                                          TimePoint came, TimePoint deadline) {
  const auto is_repeated = [&](const Message& message) {
    return message.arrival.path.source == arrival.path.source && std::ranges::equal(message.mad.bytes, mad);
  };
  if (std::ranges::any_of(messages_, is_repeated)) return std::nullopt;
  std::optional<Message> displaced;
  if (messages_.size() >= kMax) {
    const auto oldest = oldest_of_most();
    displaced = *oldest;
    messages_.erase(oldest);
  }
  Message message{{}, arrival, came, deadline};
  std::copy_n(mad.begin(), std::min(mad.size(), message.mad.bytes.size()), message.mad.bytes.begin());
  messages_.push_back(message);
  return displaced;
}

void EarlyMessages::hear_rejection(ConstBytes mad, const cm::Arrival& arrival) {
  if (messages_.empty()) return;
  const auto header = cm::decode_header(mad);
  if (!header || header->type != cm::MessageType::kRej) return;
  const auto rej = cm::decode<cm::Rej>(mad);
  if (!rej || rej->remote_id != 0) return;
  std::erase_if(messages_, [&](const Message& message) {
    if (message.arrival.path.source != arrival.path.source) return false;
    if (message.arrival.from_roce_port && !arrival.from_roce_port)
      return false;  // from another program of that host
    const auto kept = cm::decode_header(message.mad.bytes);
    if (!kept || kept->type != cm::MessageType::kReq) return false;
    const auto req = cm::decode<cm::Req>(message.mad.bytes);
    return req && req->local_id == rej->local_id;
  });
}

std::optional<EarlyMessages::Message> EarlyMessages::take_overdue(TimePoint now) {
  if (now < deadline()) return std::nullopt;
  Message message = messages_.front();
  messages_.pop_front();
  return message;
}

// Folds a product of each word into the digest, as in wyhash. No attacker sees a digest or can try many.
uint64_t OwnMessages::digest_of(ConstBytes mad) const {
  __extension__ using Wide = unsigned __int128;
  uint64_t state = secret_ ^ mad.size();
  for (size_t at = 0; at < mad.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, mad.data() + at, std::min(sizeof word, mad.size() - at));
    const Wide product = static_cast<Wide>(state ^ word) * (secret_ | 1);
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ 0x9e3779b97f4a7c15;
  }
  return std::max<uint64_t>(state, 1);
}

void OwnMessages::said(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  std::copy(set + 1, set + kWays, set);
  set[kWays - 1] = digest;
}

bool OwnMessages::heard(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  uint64_t* const found = std::find(set, set + kWays, digest);
  if (found == set + kWays) return false;
  std::copy_backward(set, found, found + 1);
  set[0] = 0;
  return true;
}

}  // namespace verbena::agent
