// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/receiver_report.h"

#include "adapter/transport/incast.h"

namespace verbena::transport {

std::optional<ReceiverReport> ReceiverReport::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  const auto word = load_be<uint32_t>(payload.data());
  ReceiverReport report;
  report.expected = roce::Psn(word);
  report.incast = incast_of_bits(word);
  report.missing = load_be<uint32_t>(&payload[4]);
  return report;
}

void ReceiverReport::write(std::array<std::byte, kBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | incast_bits(incast));
  store_be(&payload[4], missing);
}

std::optional<ReportRequest> ReportRequest::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  ReportRequest request;
  request.next = roce::Psn(load_be<uint32_t>(payload.data()));
  request.sender = roce::Qpn(load_be<uint32_t>(&payload[4]));
  request.qkey = load_be<uint32_t>(&payload[8]);
  return request;
}

void ReportRequest::write(std::array<std::byte, kBytes>& payload) const {
  store_be(payload.data(), next.value());
  store_be(&payload[4], sender.value());
  store_be(&payload[8], qkey);
}

std::optional<DatagramReport> DatagramReport::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  DatagramReport answer;
  answer.report = *ReceiverReport::read(payload);
  answer.receiver = roce::Qpn(load_be<uint32_t>(&payload[ReceiverReport::kBytes]));
  return answer;
}

void DatagramReport::write(std::array<std::byte, kBytes>& payload) const {
  std::array<std::byte, ReceiverReport::kBytes> words;
  report.write(words);
  std::ranges::copy(words, payload.begin());
  store_be(&payload[ReceiverReport::kBytes], receiver.value());
}

}  // namespace verbena::transport
