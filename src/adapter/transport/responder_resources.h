// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "adapter/memory/region.h"
#include "adapter/transport/gather.h"
#include "base/cache_line.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// The READs and atomics that a responder has executed: the answers it still has to send, in PSN order, and
// those it keeps to answer duplicates (IBTA volume 1, 9.7.5.1.3). Room for max_dest_rd_atomic of each.
class ResponderResources {
 public:
  enum class Kind : uint8_t {
    kRead,
    kAtomic,
    kEmpty,  // a READ response without payload, to an ATOMIC WRITE or a FLUSH
  };
  struct alignas(kCacheLine) Resource {
    bool valid = false;
    Kind kind = Kind::kRead;
    roce::Psn first;
    roce::Psn last;
    uint64_t address = 0;
    uint32_t rkey = 0;
    uint32_t length = 0;
    uint32_t msn = 0;
    RemoteUser user;        // whose keys they are
    uint64_t original = 0;  // of an atomic
  };
  // An answer being sent: a resource's packets from `next` to `last`, the first of them at `first`.
  struct Reply {
    Resource resource;
    roce::Psn next;
    roce::Psn given;        // past the packets of a first answer that have been sent at least once
    bool repeated = false;  // it was given in full before

    bool is_given_again() const { return repeated || next.is_before(given); }
    // All before `past` has been sent.
    void advance(roce::Psn past) {
      next = past;
      if (given.is_before(past)) given = past;
    }
  };

  void start(uint32_t most);
  // Nothing more is sent. What is saved stays.
  void stop() { count_ = repeated_ = 0; }

  bool empty() const { return count_ == 0; }
  Reply& front() { return ring_[first_]; }
  void pop_front() {
    if (front().repeated) --repeated_;
    first_ = first_ + 1 == ring_.size() ? 0 : first_ + 1;
    --count_;
  }

  // Whether the answer to another new request may be queued.
  bool has_room() const { return count_ - repeated_ < saved_.size(); }
  // Queues the answer to a new request, and saves it. False: more at once than max_dest_rd_atomic.
  bool add(const Resource& resource);

  // The newest saved resource with this PSN, nullptr if there is none: PSNs come again after 2^24.
  const Resource* saved(roce::Psn psn, Kind kind) const;
  // Queues an answer once more, if it is not still to be sent anyway. Where as many wait as there are saved
  // ones it is dropped: the peer will ask again.
  void repeat(const Resource& answer);

 private:
  Reply& at(uint32_t place) { return ring_[(first_ + place) % ring_.size()]; }
  bool queue(const Resource& resource, bool repeated);

  std::vector<Resource> saved_;  // a ring; the next to be replaced is at next_saved_
  uint32_t next_saved_ = 0;
  std::vector<Reply> ring_;  // in PSN order: count_ from first_
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  uint32_t repeated_ = 0;  // of these
};

}  // namespace verbena::transport
