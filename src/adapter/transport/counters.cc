// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/counters.h"

namespace verbena::transport {

const char* qp_counter_name(QpCounter counter) {
  static constexpr const char* kNames[] = {"sent_packets",
                                           "sent_bytes",
                                           "received_packets",
                                           "received_bytes",
                                           "retransmitted_packets",
                                           "duplicate_requests",
                                           "out_of_sequence",
                                           "sequence_naks_sent",
                                           "rnr_naks_sent",
                                           "error_naks_sent",
                                           "sequence_naks_received",
                                           "rnr_naks_received",
                                           "error_naks_received",
                                           "local_ack_timeouts",
                                           "implied_losses",
                                           "dropped_datagrams",
                                           "completions",
                                           "multicast_sent_packets",
                                           "multicast_received_packets",
                                           "sends",
                                           "receives",
                                           "send_errors",
                                           "receive_errors",
                                           "retries_exceeded",
                                           "rnr_retries_exceeded",
                                           "sent_octets",
                                           "received_octets",
                                           "ecn_marked_packets",
                                           "cnps_sent",
                                           "cnps_handled"};
  static_assert(std::size(kNames) == kQpCounterCount);
  return counter < kQpCounterCount ? kNames[counter] : "unknown";
}

}  // namespace verbena::transport
