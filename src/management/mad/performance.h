// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "management/mad/mad.h"

namespace verbena::mad {

// The counters of a port (IBTA volume 1, 16.1.3.5 and 16.1.4.11).
struct PortCounters {
  uint64_t sent_words = 0;  // in words of four bytes
  uint64_t received_words = 0;
  uint64_t sent_packets = 0;
  uint64_t received_packets = 0;
  uint64_t unicast_sent = 0;
  uint64_t unicast_received = 0;
  uint64_t multicast_sent = 0;
  uint64_t multicast_received = 0;
  uint64_t link_downed = 0;
  uint64_t receive_errors = 0;
  uint64_t send_discards = 0;

  // Returns the counters as the other end of the link would report them: sent and received are exchanged.
  // Errors and discards are 0, since they are known for this end only.
  PortCounters seen_from_peer() const;
};

// The performance management agent of a port: answers requests for the port's counters. A reset only stores
// the counters' values, which later answers subtract, so that other readers of the counters are unaffected.
// One object per port. Pure: no clock, no system calls.
class Performance {
 public:
  // Answers a request. `now`: the current counters of the port whose number is `port`. `may_set`: whether the
  // requester may reset counters. Errors are in the status of the answer.
  Mad answer(const Mad& request, uint8_t port, const PortCounters& now, bool may_set);

 private:
  // The values at the last reset. The attributes PortCounters and PortCountersExtended are reset separately.
  PortCounters base_;
  PortCounters extended_base_;
};

}  // namespace verbena::mad
