// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "adapter/memory/region.h"
#include "adapter/transport/gather.h"
#include "base/cache_line.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Responder resources (IBTA volume 1, 9.7.5.1.3): the READs and atomics that a responder has executed. Holds
// the responses still to be sent, in PSN order, and saved ones, with which it answers duplicate requests.
// There is room for max_dest_rd_atomic new responses, as many repeated ones, and as many saved ones.
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
    RemoteUser user;        // owner of the keys
    uint64_t original = 0;  // value before an atomic
  };
  // A response being sent. Its first packet has PSN `resource.first`; the packets from PSN `next` to
  // `resource.last` are still to be sent.
  struct Reply {
    Resource resource;
    roce::Psn next;
    roce::Psn given;        // PSN after the packets that were sent at least once
    bool repeated = false;  // the whole response was sent before

    // Whether the next packet was sent before.
    bool is_given_again() const { return repeated || next.is_before(given); }
    // All packets before `past` have been sent.
    void advance(roce::Psn past) {
      next = past;
      if (given.is_before(past)) given = past;
    }
  };

  // Forgets everything, and makes room for `most` responses (at least one). Called on entering RTR.
  void start(uint32_t most);
  // Drops the responses still to be sent; saved resources stay.
  void stop() { count_ = repeated_ = 0; }

  bool empty() const { return count_ == 0; }
  Reply& front() { return ring_[first_]; }
  void pop_front() {
    if (front().repeated) --repeated_;
    first_ = first_ + 1 == ring_.size() ? 0 : first_ + 1;
    --count_;
  }

  // Whether the response to another new request fits.
  bool has_room() const { return count_ - repeated_ < saved_.size(); }
  // Queues the response to a new request, and saves it. Returns false if max_dest_rd_atomic new responses are
  // still to be sent.
  bool add(const Resource& resource);

  // Returns the saved resource of this kind whose PSNs include `psn`; nullptr if there is none. Returns the
  // newest one, as PSNs repeat after 2^24.
  const Resource* saved(roce::Psn psn, Kind kind) const;
  // Queues a saved response, or a part of it, again for a duplicate request. Packets that are still to be
  // sent anyway are not queued twice. Drops the response if max_dest_rd_atomic repeated ones wait: the peer
  // will ask again.
  void repeat(const Resource& answer);

 private:
  Reply& at(uint32_t place) { return ring_[(first_ + place) % ring_.size()]; }
  bool queue(const Resource& resource, bool repeated);

  std::vector<Resource> saved_;  // a ring; the next to be replaced is at next_saved_
  uint32_t next_saved_ = 0;
  std::vector<Reply> ring_;  // in PSN order: count_ from first_
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  uint32_t repeated_ = 0;  // repeated ones among them
};

}  // namespace verbena::transport
