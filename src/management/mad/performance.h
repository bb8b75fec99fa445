// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "management/mad/mad.h"

namespace verbena::mad {

// What is counted of a port (IBTA volume 1, 16.1.3.5 and 16.1.4.11).
struct PortCounters {
  uint64_t sent_words = 0;  // data are counted in words of four bytes
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

  // As the other end of the link counts.
  PortCounters seen_from_peer() const;
};

// The performance manager of a port: answers from what is counted, and remembers what was set to zero, which
// changes nothing for others that read the counters. Pure; one for each port.
class Performance {
 public:
  // `port`: the number of the port whose counters these are. `may_set`: whether the asker may set counters
  // to zero.
  Mad answer(const Mad& request, uint8_t port, const PortCounters& now, bool may_set);

 private:
  // The two sets of counters are apart: setting one to zero leaves the other.
  PortCounters base_;
  PortCounters extended_base_;
};

}  // namespace verbena::mad
