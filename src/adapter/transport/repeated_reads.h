// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Repeats a requester's latest READ requests in a control packet to a Verbena responder. Requests are
// executed in order (IBTA volume 1, 9.7.5.1), so after a lost one no data comes for a round trip, whatever
// the path carries: half of the time on a path of 10 ms that loses one packet in a hundred. A request is
// small beside its data, so each is repeated twice in later packets. A responder that has them all ignores
// the packet, like any vendor opcode (sack.h). Only a responder that has sent SACKs gets it.
struct RepeatedReads {
  static constexpr uint32_t kMax = 4;
  // After this many new requests the packet is sent.
  static constexpr uint32_t kNew = 2;
  // A PSN and a RETH.
  static constexpr uint32_t kRequestBytes = 4 + roce::kRethBytes;
  static constexpr uint32_t kMaxBytes = kMax * kRequestBytes;

  struct Request {
    roce::Psn psn;
    uint64_t address = 0;
    uint32_t rkey = 0;
    uint32_t bytes = 0;
  };

  // Reads a packet's payload, up to its last complete request.
  static RepeatedReads read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  // Drops the oldest request if there is no room.
  void add(const Request& request);
  void clear() { count = 0; }
  // Drops answered requests. They must not be repeated, as other requests will have their PSNs one day.
  void drop_before(roce::Psn psn);
  std::span<const Request> all() const& { return {requests.data(), count}; }
  std::span<const Request> all() && = delete;  // it would dangle

  std::array<Request, kMax> requests;  // in the order in which they were sent
  uint32_t count = 0;
};

// The latest requests that a responder has taken from such packets. The network may still deliver the
// original of one, which then must not be answered again. This holds once for each, as the peer may really
// repeat it later.
//
// For the shard's lock holder.
class ReadsByWord {
 public:
  void add(roce::Psn psn, uint32_t bytes) { requests_[next_++ % requests_.size()] = {psn, bytes, true}; }
  // Whether this is the original of such a request, coming for the first time.
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
