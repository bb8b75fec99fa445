// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Repeats a requester's latest READ requests in a control packet to a Verbena responder. Requests are
// executed in order (IBTA volume 1, 9.7.5.1), so after a lost request no data comes for a round trip,
// whatever the path carries. On a path with an RTT of 10 ms that loses one packet in a hundred, that is half
// of the time. A request is small beside its data, so each one is repeated in two later packets. A responder
// that has all requests ignores the packet. Only a responder that has sent SACKs gets this vendor opcode
// (sack.h).
struct RepeatedReads {
  static constexpr uint32_t kMax = 4;
  // The requester sends a packet after this many new requests.
  static constexpr uint32_t kNew = 2;
  // Size of one request in the payload: a PSN and a RETH.
  static constexpr uint32_t kRequestBytes = 4 + roce::kRethBytes;
  static constexpr uint32_t kMaxBytes = kMax * kRequestBytes;

  struct Request {
    roce::Psn psn;
    uint64_t address = 0;
    uint32_t rkey = 0;
    uint32_t bytes = 0;
  };

  // Parses a packet's payload, up to its last complete request.
  static RepeatedReads read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  // Adds a request. Drops the oldest one if there are kMax already.
  void add(const Request& request);
  void clear() { count = 0; }
  // Drops the requests before `psn`, which are answered. They must not be repeated later, when other requests
  // have the same PSNs.
  void drop_before(roce::Psn psn);
  std::span<const Request> all() const& { return {requests.data(), count}; }
  std::span<const Request> all() && = delete;  // it would dangle

  std::array<Request, kMax> requests;  // in the order in which they were sent
  uint32_t count = 0;
};

// Remembers the latest requests that a responder has executed from RepeatedReads packets. The network may
// still deliver the original of such a request, which must not be answered again. Each request is ignored
// only once, as the peer may repeat the READ itself later.
//
// For the shard's lock holder.
class ReadsByWord {
 public:
  void add(roce::Psn psn, uint32_t bytes) { requests_[next_++ % requests_.size()] = {psn, bytes, true}; }
  // Whether to ignore a request, as the late original of a remembered one. Returns true once for each
  // remembered request.
  bool take(roce::Psn psn, uint32_t bytes);
  void clear() { requests_ = {}; }

 private:
  struct Request {
    roce::Psn psn;
    uint32_t bytes = 0;
    bool awaited = false;
  };
  std::array<Request, 4 * RepeatedReads::kMax> requests_;
  uint32_t next_ = 0;
};

}  // namespace verbena::transport
