// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/transport/receiver_report.h"

namespace verbena::transport {

// Decides when a UC receiver owes its sender a receiver report (receiver_report.h), and counts the missing
// packets.
//
// For the shard's lock holder.
class ReportsOwed {
 public:
  // Payload bytes between reports to a sender that has confirmed no report. Its AckReq is ignored, since
  // Linux rxe sets AckReq, too. From the kOften-th report on, each report doubles the bytes, kMaxSeldom times
  // at most. Reports never stop: where most packets are lost, the first reports and confirmations may be,
  // too.
  static constexpr uint64_t kUnheardBytes = 16 * 1024;
  static constexpr uint32_t kOften = 8;
  static constexpr uint32_t kMaxSeldom = 6;

  // Counts a packet with `bytes` bytes of payload, before which `missing` packets are missing. `asks` tells
  // whether the packet has AckReq. May make a report due.
  void on_packet(uint32_t missing, uint32_t bytes, bool asks) {
    missing_ += missing;
    bytes_ += bytes;
    is_due_ = is_due_ || (heard_ ? asks : bytes_ >= kUnheardBytes << seldom_);
  }
  // A packet that was counted as missing came late.
  void on_late() { missing_ -= missing_ > 0 ? 1 : 0; }
  // The sender has confirmed a report, so it understands reports.
  void on_heard() { heard_ = true; }
  // Makes a report due that tells of other senders, if the sender has confirmed a report.
  void owe() { is_due_ = is_due_ || heard_; }

  bool is_due() const { return is_due_; }
  uint32_t missing() const { return missing_; }
  // A report has left.
  void on_sent() {
    is_due_ = false;
    bytes_ = 0;
    if (!heard_ && ++unheard_ >= kOften) seldom_ = std::min(seldom_ + 1, kMaxSeldom);
  }

 private:
  uint32_t missing_ = 0;
  uint64_t bytes_ = 0;  // since the last report
  uint32_t unheard_ = 0;
  uint32_t seldom_ = 0;  // number of doublings
  bool heard_ = false;
  bool is_due_ = false;
};

}  // namespace verbena::transport
