// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "adapter/congestion/algorithm.h"
#include "base/bytes.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Receiver report of UC, from a Verbena receiver to a Verbena sender (for UD, a part of DatagramReport). It
// names the next expected PSN and the total number of missing packets. From reports the sender learns what
// the path carries, since UC and UD have no acknowledgements. Missing packets are not sent again.
//
// The packet has a vendor opcode, and a PSN from the distant past for the reasons that sack.h gives. The
// sender requests a report by AckReq, which has no other meaning in UC. A sender that has confirmed no report
// gets reports unrequested, and ever more rarely (ReportsOwed): it may not understand them. The payload is
// two 32-bit words. The first is the expected PSN, with the bits of incast.h; the second is the number
// of packets that were missing since the connection was made.
struct ReceiverReport {
  static constexpr uint32_t kBytes = 8;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<ReceiverReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn expected;
  uint32_t missing = 0;  // modulo 2^32
  congestion::Incast incast;
};

// Requests a receiver report: the sender of many datagrams asks their receiver which have arrived. All
// datagrams of a QP share one PSN sequence, whatever their destination, so a receiver cannot tell from PSNs
// which datagrams to itself are missing. Therefore the sender counts datagrams per destination, and sends the
// count ahead of the next one.
//
// The payload is three 32-bit words: the count, the sender's QPN, and the Q_Key. A packet without DETH does
// not carry the QPN otherwise. By the Q_Key, only a sender with the right to send datagrams makes the
// receiver keep state.
struct ReportRequest {
  static constexpr uint32_t kBytes = 12;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<ReportRequest> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn next;  // the count of the next datagram
  roce::Qpn sender;
  uint32_t qkey = 0;
};

// Answers a ReportRequest: a receiver report whose `expected` is the request's count, then a third word with
// the receiver's QPN.
struct DatagramReport {
  static constexpr uint32_t kBytes = ReceiverReport::kBytes + 4;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<DatagramReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  ReceiverReport report;
  roce::Qpn receiver;
};

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
  // Makes a report due that names other senders, if the sender has confirmed a report.
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
