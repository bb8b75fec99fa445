// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/early_messages.h"

#include <algorithm>
#include <cstring>

namespace verbena::agent {

namespace {

std::optional<uint64_t> service_id_of(ConstBytes mad) {
  const auto header = cm::decode_header(mad);
  if (!header) return std::nullopt;
  const auto service_of = [](const auto& request) {
    return request ? std::optional(request->service_id) : std::nullopt;
  };
  if (header->type == cm::MessageType::kReq) return service_of(cm::decode<cm::Req>(mad));
  if (header->type == cm::MessageType::kSidrReq) return service_of(cm::decode<cm::SidrReq>(mad));
  return std::nullopt;
}

}  // namespace

EarlyMessages::Messages::const_iterator EarlyMessages::oldest_of_most() const {
  return std::ranges::max_element(messages_, {}, [](const Kept& kept) { return kept.of_sender->second; });
}

bool EarlyMessages::has_room(const roce::Address& sender, Duration waited) const {
  if (waited >= kPatience) return messages_.size() < kMax / 2;
  if (messages_.size() < kMax) return true;
  const auto of_sender = counts_.find(sender.bytes);
  return of_sender == counts_.end() || of_sender->second < oldest_of_most()->of_sender->second;
}

std::optional<EarlyMessages::Message> EarlyMessages::keep(ConstBytes mad, const cm::Arrival& arrival,
                                                          TimePoint came, TimePoint deadline) {
  const auto is_repeated = [&](const Kept& kept) {
    return kept.message.arrival.path.source == arrival.path.source &&
           std::ranges::equal(kept.message.mad.bytes, mad);
  };
  if (std::ranges::any_of(messages_, is_repeated)) return std::nullopt;
  std::optional<Message> displaced;
  if (messages_.size() >= kMax) displaced = remove(oldest_of_most());
  Message message{{}, arrival, came, deadline, ++last_number_, service_id_of(mad)};
  std::copy_n(mad.begin(), std::min(mad.size(), message.mad.bytes.size()), message.mad.bytes.begin());
  const auto of_sender = counts_.try_emplace(arrival.path.source.bytes, 0).first;
  messages_.push_back({message, of_sender});
  ++of_sender->second;
  return displaced;
}

void EarlyMessages::uncount(const Kept& kept) {
  if (--kept.of_sender->second == 0) counts_.erase(kept.of_sender);
}

EarlyMessages::Message EarlyMessages::remove(Messages::const_iterator kept) {
  const Message message = kept->message;
  uncount(*kept);
  messages_.erase(kept);
  return message;
}

void EarlyMessages::hear_rejection(ConstBytes mad, const cm::Arrival& arrival) {
  if (messages_.empty()) return;
  const auto header = cm::decode_header(mad);
  if (!header || header->type != cm::MessageType::kRej) return;
  const auto rej = cm::decode<cm::Rej>(mad);
  if (!rej || rej->remote_id != 0) return;
  const auto is_given_up = [&](const Kept& entry) {
    const Message& message = entry.message;
    if (message.arrival.path.source != arrival.path.source) return false;
    if (message.arrival.from_roce_port && !arrival.from_roce_port)
      return false;  // from another program of that host
    const auto kept = cm::decode_header(message.mad.bytes);
    if (!kept || kept->type != cm::MessageType::kReq) return false;
    const auto req = cm::decode<cm::Req>(message.mad.bytes);
    return req && req->local_id == rej->local_id;
  };
  std::erase_if(messages_, [&](const Kept& entry) {
    const bool ends = is_given_up(entry);
    if (ends) uncount(entry);
    return ends;
  });
}

std::optional<EarlyMessages::Message> EarlyMessages::take_overdue(TimePoint now) {
  if (now < deadline()) return std::nullopt;
  return remove(messages_.cbegin());
}

std::optional<EarlyMessages::Message> EarlyMessages::take(uint64_t last,
                                                          const std::function<bool(const Message&)>& counts) {
  const auto found = std::ranges::find_if(
      messages_, [&](const Kept& kept) { return kept.message.number <= last && counts(kept.message); });
  if (found == messages_.end()) return std::nullopt;
  return remove(found);
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
