// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/datagram_receipt.h"

#include <algorithm>

namespace verbena::transport {

std::optional<ReceiptRequest> ReceiptRequest::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  ReceiptRequest request;
  request.next = roce::Psn(load_be<uint32_t>(payload.data()));
  request.sender = roce::Qpn(load_be<uint32_t>(&payload[4]));
  request.qkey = load_be<uint32_t>(&payload[8]);
  return request;
}

void ReceiptRequest::write(std::array<std::byte, kBytes>& payload) const {
  store_be(payload.data(), next.value());
  store_be(&payload[4], sender.value());
  store_be(&payload[8], qkey);
}

std::optional<DatagramReceipt> DatagramReceipt::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  DatagramReceipt answer;
  answer.receipt = *Receipt::read(payload);
  answer.receiver = roce::Qpn(load_be<uint32_t>(&payload[Receipt::kBytes]));
  return answer;
}

void DatagramReceipt::write(std::array<std::byte, kBytes>& payload) const {
  std::array<std::byte, Receipt::kBytes> words;
  receipt.write(words);
  std::ranges::copy(words, payload.begin());
  store_be(&payload[Receipt::kBytes], receiver.value());
}

}  // namespace verbena::transport
