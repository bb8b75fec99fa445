// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "adapter/transport/counters.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// The counters of a device: sums over its QPs, including destroyed ones, and the events of its link.
struct DeviceCounters {
  std::array<uint64_t, transport::kQpCounterCount> qps{};  // by transport::QpCounter
  uint64_t link_downed = 0;                                // how often the link went down

  uint64_t& operator[](size_t counter) { return qps[counter]; }
  uint64_t operator[](size_t counter) const { return qps[counter]; }
  friend bool operator==(const DeviceCounters&, const DeviceCounters&) = default;
};

// Copies the counters from the agent's reply.
inline DeviceCounters counters_in(const protocol::DeviceCountersReply& reply) {
  static_assert(transport::kQpCounterCount <= protocol::DeviceCountersReply::kNumbers);
  DeviceCounters counters;
  std::copy_n(reply.qps, counters.qps.size(), counters.qps.begin());
  counters.link_downed = reply.link_downed;
  return counters;
}

// Returns `sum` - `part`, or 0 if `part` is larger. `part` can be larger if it was read a moment after `sum`.
constexpr uint64_t rest_of(uint64_t sum, uint64_t part) {
  return sum > part ? sum - part : 0;
}

// A counter file of a port in sysfs, under a name that tools look for.
struct NamedCounter {
  std::string_view path;  // in the port's folder, such as counters/port_xmit_data
  uint64_t (*value)(const DeviceCounters&);
};

template <transport::QpCounter kCounter>
uint64_t value_of(const DeviceCounters& counters) {
  return counters[kCounter];
}

// The counters of InfiniBand ports (Documentation/ABI/stable/sysfs-class-infiniband) and of the kernel's rxe,
// and those of mlx5 that DeviceCounters can supply. Some values appear under several names.
inline constexpr std::array kNamedCounters = std::to_array<NamedCounter>({
    // All octets between the packet delimiters, in words of four (IBTA volume 1, 16.1.3.5).
    {"counters/port_xmit_data", [](const DeviceCounters& c) { return c[transport::kSentOctets] / 4; }},
    {"counters/port_rcv_data", [](const DeviceCounters& c) { return c[transport::kReceivedOctets] / 4; }},
    {"counters/port_xmit_packets", value_of<transport::kSentPackets>},
    {"counters/port_rcv_packets", value_of<transport::kReceivedPackets>},
    {"counters/unicast_xmit_packets",
     [](const DeviceCounters& c) { return rest_of(c[transport::kSentPackets], c[transport::kMulticastSent]); }},
    {"counters/unicast_rcv_packets",
     [](const DeviceCounters& c) { return rest_of(c[transport::kReceivedPackets], c[transport::kMulticastReceived]); }},
    {"counters/multicast_xmit_packets", value_of<transport::kMulticastSent>},
    {"counters/multicast_rcv_packets",
     value_of<transport::kMulticastReceived>},
    {"counters/link_downed", [](const DeviceCounters& c) { return c.link_downed; }},

    {"hw_counters/sent_pkts", value_of<transport::kSentPackets>},
    {"hw_counters/rcvd_pkts", value_of<transport::kReceivedPackets>},
    {"hw_counters/duplicate_request", value_of<transport::kDuplicateRequests>},
    {"hw_counters/out_of_seq_request", value_of<transport::kOutOfSequence>},
    {"hw_counters/rcvd_rnr_err", value_of<transport::kRnrNaksReceived>},
    {"hw_counters/send_rnr_err", value_of<transport::kRnrNaksSent>},
    {"hw_counters/rcvd_seq_err", value_of<transport::kSequenceNaksReceived>},
    {"hw_counters/retry_exceeded_err", value_of<transport::kRetriesExceeded>},
    {"hw_counters/retry_rnr_exceeded_err",
     value_of<transport::kRnrRetriesExceeded>},
    // As rxe counts: the last timeout, after which nothing is retried, is not included.
    {"hw_counters/completer_retry_err",
     [](const DeviceCounters& c) {
       const uint64_t causes = c[transport::kLocalAckTimeouts] + c[transport::kSequenceNaksReceived] +
                               c[transport::kImpliedLosses];
       return rest_of(causes, c[transport::kRetriesExceeded]);
     }},
    {"hw_counters/link_downed", [](const DeviceCounters& c) { return c.link_downed; }},
    {"hw_counters/rdma_sends", value_of<transport::kSends>},
    {"hw_counters/rdma_recvs", value_of<transport::kReceives>},
    {"hw_counters/sent_bytes", value_of<transport::kSentOctets>},
    {"hw_counters/rcvd_bytes", value_of<transport::kReceivedOctets>},

    {"hw_counters/out_of_sequence", value_of<transport::kOutOfSequence>},
    {"hw_counters/packet_seq_err",
     value_of<transport::kSequenceNaksReceived>},
    {"hw_counters/rnr_nak_retry_err", value_of<transport::kRnrNaksReceived>},
    {"hw_counters/out_of_buffer", value_of<transport::kRnrNaksSent>},
    {"hw_counters/local_ack_timeout_err",
     value_of<transport::kLocalAckTimeouts>},
    {"hw_counters/implied_nak_seq_err", value_of<transport::kImpliedLosses>},
    {"hw_counters/roce_adp_retrans",
     value_of<transport::kRetransmittedPackets>},
    {"hw_counters/np_ecn_marked_roce_packets",
     value_of<transport::kMarkedPackets>},
    {"hw_counters/np_cnp_sent", value_of<transport::kNoticesSent>},
    {"hw_counters/rp_cnp_handled", value_of<transport::kNoticesReceived>},
    {"hw_counters/req_cqe_error", value_of<transport::kSendErrors>},
    {"hw_counters/resp_cqe_error", value_of<transport::kReceiveErrors>},
});

}  // namespace verbena::control
