// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// What a requester of ours tells a responder of ours beside its READ requests: the latest of them once more.
// Requests are executed in their order (IBTA volume 1, 9.7.5.1), so behind one that was lost no data comes
// for a round trip, whatever the path carries: half of the time on one of 10 ms that loses one packet in a
// hundred. A request is small beside its data, so each is named twice in what follows it. Who has them all
// passes over it, as over any word of no service (sack.h); only one that has told of arrivals is told.
struct RepeatedReads {
  static constexpr uint32_t kMax = 4;
  // So many new ones make a word.
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

  // Reads a packet's payload: as many as are whole.
  static RepeatedReads read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  // The oldest goes, if there is no room.
  void add(const Request& request);
  void clear() { count = 0; }
  // Those before are answered, and must not be named again: their PSNs may be those of others one day.
  void drop_before(roce::Psn psn);
  std::span<const Request> all() const& { return {requests.data(), count}; }
  std::span<const Request> all() && = delete;  // nothing would hold them

  std::array<Request, kMax> requests;  // in the order in which they were sent
  uint32_t count = 0;
};

// The latest requests that a responder has taken from such words. The network may bring one of them later
// yet: it asks for nothing again then. Once for each, as a peer may ask for all of it again.
//
// For the shard's lock holder.
class ReadsByWord {
 public:
  void add(roce::Psn psn, uint32_t bytes) { requests_[next_++ % requests_.size()] = {psn, bytes, true}; }
  // Whether this is one, which has come for the first time since.
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
