// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/early_messages.h"

#include <algorithm>

#include "management/cm/messages.h"

namespace verbena::agent {

void EarlyMessages::keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline) {
  const auto is_repeated = [&](const Message& message) {
    return message.arrival.path.source == arrival.path.source && std::ranges::equal(message.mad.bytes, mad);
  };
  if (std::ranges::any_of(messages_, is_repeated)) return;
  Message message{{}, arrival, came, deadline};
  std::copy_n(mad.begin(), std::min(mad.size(), message.mad.bytes.size()), message.mad.bytes.begin());
  messages_.push_back(message);
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

}  // namespace verbena::agent
