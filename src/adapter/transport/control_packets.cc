// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/control_packets.h"

#include <utility>

#include "adapter/transport/incast.h"

namespace verbena::transport {

namespace {

// Half the PSN space: beyond it, old and new PSNs look alike.
constexpr uint32_t kFurthest = 1u << 23;

}  // namespace

Sack Sack::read(ConstBytes payload) {
  Sack arrivals;
  if (payload.size() < 4) return arrivals;
  const auto begin = load_be<uint32_t>(payload.data());
  arrivals.expected = roce::Psn(begin);
  arrivals.continues = (begin & kContinues) != 0;
  arrivals.incast = incast_of_bits(begin);
  uint32_t past = 0;
  for (size_t at = 4; at + kRangeBytes <= payload.size() && arrivals.count < kMax; at += kRangeBytes) {
    const auto distance = load_be<uint32_t>(&payload[at]);
    const auto count = load_be<uint32_t>(&payload[at + 4]);
    if (distance <= past || count == 0 || distance >= kFurthest || count >= kFurthest - distance) break;
    past = distance + count;
    arrivals.ranges[arrivals.count++] = {arrivals.expected + distance, count};
  }
  return arrivals;
}

uint32_t Sack::write(std::array<std::byte, kMaxBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | incast_bits(incast) | (continues ? kContinues : 0));
  std::byte* at = payload.data() + 4;
  for (uint32_t i = 0; i < count; ++i, at += kRangeBytes) {
    store_be(at, static_cast<uint32_t>(ranges[i].first - expected));
    store_be(at + 4, ranges[i].count);
  }
  return static_cast<uint32_t>(at - payload.data());
}

RepeatedReads RepeatedReads::read(ConstBytes payload) {
  RepeatedReads reads;
  for (; payload.size() >= kRequestBytes && reads.count < kMax; payload = payload.subspan(kRequestBytes)) {
    reads.requests[reads.count++] = {roce::Psn(load_be<uint32_t>(&payload[0])),
                                     load_be<uint64_t>(&payload[4]), load_be<uint32_t>(&payload[12]),
                                     load_be<uint32_t>(&payload[16])};
  }
  return reads;
}

uint32_t RepeatedReads::write(std::array<std::byte, kMaxBytes>& payload) const {
  std::byte* at = payload.data();
  for (const Request& request : all()) {
    store_be<uint32_t>(at, request.psn.value());
    store_be(at + 4, request.address);
    store_be(at + 12, request.rkey);
    store_be(at + 16, request.bytes);
    at += kRequestBytes;
  }
  return count * kRequestBytes;
}

void RepeatedReads::add(const Request& request) {
  if (count == kMax) {
    std::move(requests.begin() + 1, requests.end(), requests.begin());
    --count;
  }
  requests[count++] = request;
}

void RepeatedReads::drop_before(roce::Psn psn) {
  uint32_t answered = 0;
  while (answered < count && requests[answered].psn.is_before(psn)) ++answered;
  if (answered == 0) return;
  std::move(requests.begin() + answered, requests.begin() + count, requests.begin());
  count -= answered;
}

bool ReadsByWord::take(roce::Psn psn, uint32_t bytes) {
  for (Request& request : requests_) {
    if (!request.awaited || request.psn != psn || request.bytes != bytes) continue;
    request.awaited = false;
    return true;
  }
  return false;
}

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
