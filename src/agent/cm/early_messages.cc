// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/early_messages.h"

#include <algorithm>

namespace verbena::agent {

void EarlyMessages::keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline) {
  Message message{{}, arrival, came, deadline};
  std::copy_n(mad.begin(), std::min(mad.size(), message.mad.bytes.size()), message.mad.bytes.begin());
  messages_.push_back(message);
}

std::optional<EarlyMessages::Message> EarlyMessages::take_overdue(TimePoint now) {
  if (now < deadline()) return std::nullopt;
  Message message = messages_.front();
  messages_.pop_front();
  return message;
}

}  // namespace verbena::agent
