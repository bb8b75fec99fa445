// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "adapter/transport/receiver_report.h"
#include "base/bytes.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

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

}  // namespace verbena::transport
