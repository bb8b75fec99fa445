// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <infiniband/verbs.h>

#include "adapter/queues/mapped_array.h"
#include "adapter/queues/shared_receive_queue.h"
#include "base/result.h"

namespace verbena::queues {

// The tagged buffers of a shared receive queue for tag matching (ibv_post_srq_ops(3)), in the order in which
// they were added. A message goes to the oldest buffer that has the message's tag under the buffer's mask.
//
// A message without such a buffer is unexpected, and left to software. Software may be about to add the
// buffer for it. So buffers added while software has not handled all unexpected messages match nothing until
// it has.
//
// For the shard's lock holder. Allocates nothing after its creation.
class TagList {
 public:
  struct Buffer {
    uint64_t tag;
    uint64_t mask;  // a message matches if its tag under this mask is `tag`
    uint64_t wr_id;
    std::span<const ibv_sge> list;
  };

  static Result<std::unique_ptr<TagList>> create(uint32_t most);

  uint32_t capacity() const { return max_; }

  // Appends a buffer. Returns its handle for remove(). Errors: ENOMEM if the list is full. REQUIRES:
  // buffer.list.size() <= kMaxSge
  Result<uint32_t> add(const Buffer& buffer);
  // False: no buffer has this handle (any more).
  bool remove(uint32_t handle);

  // Takes the oldest buffer that the tag matches. False: there is none.
  bool take(uint64_t tag, HeldReceive& into);
  // The request of the buffer that take() would take, for its size; nullptr: none matches.
  const RecvWqe* find(uint64_t tag) const;

  // Counts a message that no buffer matched.
  void count_unexpected() { ++unexpected_; }
  // Software has handled `handled` unexpected messages since the creation; the number wraps.
  void synchronize(uint32_t handled);
  bool is_synchronized() const { return handled_ == unexpected_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t tag;
    uint64_t mask;
    uint32_t next;
    uint32_t previous;
    uint32_t generation;  // distinguishes the handles that a place has had
    bool used;
    bool waits;  // for synchronize()
    HeldReceive receive;
  };

  TagList(MappedArray entries, uint32_t most) : entries_(std::move(entries)), max_(most) {}
  Entry& at(uint32_t place) const { return reinterpret_cast<Entry*>(entries_.data())[place]; }
  uint32_t search(uint64_t tag) const;
  uint32_t free_place();
  void unlink(uint32_t place);

  MappedArray entries_;
  const uint32_t max_;
  uint32_t first_ = kNone;
  uint32_t last_ = kNone;
  uint32_t first_free_ = kNone;  // used places that are free again, linked by `next`
  uint32_t fresh_ = 0;           // places from here on have never been used
  uint32_t unexpected_ = 0;
  uint32_t handled_ = 0;
};

}  // namespace verbena::queues
