// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/early_requests.h"

#include <algorithm>

namespace verbena::agent {

void EarlyRequests::keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint deadline) {
  Request request{{}, arrival, deadline};
  std::copy_n(mad.begin(), std::min(mad.size(), request.mad.bytes.size()), request.mad.bytes.begin());
  requests_.push_back(request);
}

std::optional<EarlyRequests::Request> EarlyRequests::take_overdue(TimePoint now) {
  if (now < deadline()) return std::nullopt;
  Request request = requests_.front();
  requests_.pop_front();
  return request;
}

}  // namespace verbena::agent
