// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/transport/receiver_report.h"

namespace verbena::transport {

// Decides when the receiver of an unreliable service owes its sender a receiver report, and counts the
// missing packets.
//
// For the shard's lock holder.
class ReportsOwed {
 public:
  // Bytes between reports to a sender that has confirmed none, whatever it requests: Linux rxe sets AckReq,
  // too. After kOften reports they double with each, up to kMaxSeldom times. Reports never stop, since
  // reports and confirmations may be lost where most packets are.
  static constexpr uint64_t kUnheardBytes = 16 * 1024;
  static constexpr uint32_t kOften = 8;
  static constexpr uint32_t kMaxSeldom = 6;

  // Counts the packets missing before this one. `asks`: it has AckReq.
  void on_packet(uint32_t missing, uint32_t bytes, bool asks) {
    missing_ += missing;
    bytes_ += bytes;
    is_due_ = is_due_ || (heard_ ? asks : bytes_ >= kUnheardBytes << seldom_);
  }
  // A packet that was counted as missing came late.
  void on_late() { missing_ -= missing_ > 0 ? 1 : 0; }
  void on_heard() { heard_ = true; }
  // Makes a report due for another reason, if the sender understands reports.
  void owe() { is_due_ = is_due_ || heard_; }

  bool is_due() const { return is_due_; }
  uint32_t missing() const { return missing_; }
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
