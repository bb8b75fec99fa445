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

// How the sender of many datagrams asks their receiver what has come of them. Datagrams of one queue pair to
// all its destinations share one row of PSNs, so nobody could tell from those what is missing of the ones to
// him: the sender counts what goes to each destination, and says the count in front of the next.
//
// Its payload is three words: the count; the sender's QP number, which no header says where there is no DETH;
// and the Q_Key, so that only who may send datagrams makes the receiver keep something.
struct ReportRequest {
  static constexpr uint32_t kBytes = 12;

  // nullopt: too short.
  static std::optional<ReportRequest> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn next;  // the count, as it is of the next datagram
  roce::Qpn sender;
  uint32_t qkey = 0;
};

// The answer: a receipt, in which the count that was asked with is expected next, and a third word, the QP
// number of the receiver.
struct DatagramReport {
  static constexpr uint32_t kBytes = ReceiverReport::kBytes + 4;

  // nullopt: too short.
  static std::optional<DatagramReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  ReceiverReport report;
  roce::Qpn receiver;
};

}  // namespace verbena::transport
