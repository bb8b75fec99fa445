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
// A message that matches no buffer is unexpected, and the application handles it. The application may be
// about to add a buffer for this very message. So buffers that are added before the application has handled
// all unexpected messages match nothing until it has (synchronize()).
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
  // Removes the buffer with this handle. Returns false if there is none, for example because a message has
  // taken it.
  bool remove(uint32_t handle);

  // Moves the oldest buffer that matches the tag to `into`. Returns false if there is none.
  bool take(uint64_t tag, HeldReceive& into);
  // Returns the request of the buffer that take() would take, so that the caller learns its size; nullptr if
  // none matches.
  const RecvWqe* find(uint64_t tag) const;

  // Counts a message that no buffer matched.
  void count_unexpected() { ++unexpected_; }
  // The application has handled `handled` unexpected messages since the list was created, modulo 2^32. If
  // these are all, buffers that wait match from now on.
  void synchronize(uint32_t handled);
  bool is_synchronized() const { return handled_ == unexpected_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t tag;
    uint64_t mask;
    uint32_t next;
    uint32_t previous;
    uint32_t generation;  // how often the entry was used: makes its handles different
    bool used;
    bool waits;  // matches nothing until synchronize()
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
