// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/repeated_reads.h"

#include <utility>

namespace verbena::transport {

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

}  // namespace verbena::transport
