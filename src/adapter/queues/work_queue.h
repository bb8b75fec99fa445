// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>

#include <infiniband/verbs.h>

#include "adapter/memory/window.h"
#include "adapter/queues/mapped_array.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::queues {

inline constexpr uint32_t kMaxSge = 32;
inline constexpr uint32_t kMaxInline = 1024;  // bytes

// Bits of SendWqe::flags: those that an application may set, and two of ours. kTagMatchingRequest marks a
// request that tag matching has made (fetch_rendezvous()). kRefusedRequest marks a request that the service
// cannot execute: it completes with IBV_WC_LOC_QP_OP_ERR, after the requests that were posted before it.
inline constexpr uint8_t kSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE | IBV_SEND_IP_CSUM;
inline constexpr uint8_t kTagMatchingRequest = 0x80;
inline constexpr uint8_t kRefusedRequest = 0x40;
static_assert((kSendFlags & (kTagMatchingRequest | kRefusedRequest)) == 0);

// A send request as stored in the ring: the application's part, filled in by post_send, and the requester's
// own fields. Its gather list, or its inline data, follows directly.
struct SendWqe {
  uint64_t wr_id;
  uint64_t remote_address;
  uint64_t compare_add;
  uint64_t swap;
  uint32_t rkey;
  uint32_t immediate;  // as given by the application (network order), or the R_Key to invalidate
  uint32_t length;     // of all pieces
  uint16_t num_sge;    // 0 for inline data
  uint8_t opcode;      // enum ibv_wr_opcode
  uint8_t flags;       // enum ibv_send_flags

  // UD: destination
  roce::Path path;
  union {
    uint32_t remote_qkey;    // UD
    uint32_t remote_srqn;    // XRC: the peer's shared receive queue
    uint32_t window_access;  // BIND_MW
  };
  roce::Qpn remote_qpn;

  // Fields of the requester, valid once the request has its PSNs.
  roce::Psn first_psn;
  roce::Psn last_psn;
  uint32_t part_packets;  // of a READ: packets requested at a time
  bool executed;          // a request without packets has been executed

  // binding() returns the parameters of a BIND_MW request, and set_binding() stores them, except for `pd` and
  // `qpn`, which are those of the request's QP. They are stored in fields that other requests use for remote
  // memory and atomics. Window and region are named by keys, because they may be destroyed before the request
  // is executed.
  memory::WindowBinding binding(memory::PdId pd, roce::Qpn qpn) const {
    return {.window_key = static_cast<uint32_t>(swap >> 32),
            .new_key = rkey,
            .region_key = static_cast<uint32_t>(swap),
            .address = remote_address,
            .length = compare_add,
            .access = window_access,
            .pd = pd,
            .qpn = qpn.value()};
  }
  void set_binding(const memory::WindowBinding& b) {
    swap = uint64_t{b.window_key} << 32 | b.region_key;
    rkey = b.new_key;
    window_access = b.access;
    remote_address = b.address;
    compare_add = b.length;
  }

  bool is_refused() const { return (flags & kRefusedRequest) != 0; }
  bool is_inline() const { return (flags & IBV_SEND_INLINE) != 0; }
  bool has_flag(ibv_send_flags flag) const { return (flags & flag) != 0; }
  std::span<const ibv_sge> sges() const { return {reinterpret_cast<const ibv_sge*>(this + 1), num_sge}; }
  ibv_sge* sge_space() { return reinterpret_cast<ibv_sge*>(this + 1); }
  std::byte* inline_space() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* inline_data() const { return reinterpret_cast<const std::byte*>(this + 1); }
};
static_assert(alignof(SendWqe) <= 16 && sizeof(SendWqe) % alignof(ibv_sge) == 0);

// A receive request; the scatter list follows.
struct RecvWqe {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;

  std::span<const ibv_sge> sges() const { return {reinterpret_cast<const ibv_sge*>(this + 1), num_sge}; }
  ibv_sge* sge_space() { return reinterpret_cast<ibv_sge*>(this + 1); }
};
static_assert(sizeof(RecvWqe) % alignof(ibv_sge) == 0);

// Copies an entry of a program's gather or scatter list, member by member. A program stores each member
// separately, just before it posts the entry. A CPU can forward data to a load from one store only, not from
// several. So a load of the whole entry would wait until all these stores have reached the cache: a WRITE of
// eight bytes took 9 ns longer.
inline void copy_entry(const ibv_sge& from, ibv_sge& to) {
  uint64_t address = from.addr;
  uint32_t length = from.length;
  uint32_t lkey = from.lkey;
  asm("" : "+r"(address), "+r"(length), "+r"(lkey));  // compilers would join the loads
  to = {address, length, lkey};
}

inline void copy_list(std::span<const ibv_sge> list, ibv_sge* to) {
  if (list.size() == 1) [[likely]]
    return copy_entry(list[0], *to);  // the loop takes 7 ns more
  for (const ibv_sge& each : list) copy_entry(each, *to++);
}

// A ring of work requests of equal size. There is one producer at a time (posting threads hold a lock), and
// one consumer at a time (the shard). Indexes count up and wrap at 2^32. The consumer may read all requests
// from consumed() to posted().
template <class Wqe>
class WorkQueue {
 public:
  // Makes a ring with at least `requests` slots, rounded up to a power of two, with `extra_bytes` after each
  // Wqe for the list or inline data. With `requests` 0, the queue has no ring. Errors: ENOMEM.
  static Result<WorkQueue> create(uint32_t requests, uint32_t extra_bytes, MappedArray::Source source = {}) {
    WorkQueue queue;
    if (requests == 0) return queue;
    const uint32_t slots = std::bit_ceil(requests);
    queue.stride_ = (static_cast<uint32_t>(sizeof(Wqe)) + extra_bytes + 15) & ~15u;
    auto ring = MappedArray::create(size_t{slots} * queue.stride_, source);
    if (!ring) return tl::unexpected(ring.error());
    queue.ring_ = std::move(*ring);
    queue.slots_ = slots;
    return queue;
  }

  WorkQueue() = default;
  WorkQueue(WorkQueue&& other) noexcept
      : ring_(std::move(other.ring_)), slots_(other.slots_), stride_(other.stride_) {}
  WorkQueue& operator=(WorkQueue&& other) noexcept {
    ring_ = std::move(other.ring_);
    slots_ = other.slots_;
    stride_ = other.stride_;
    return *this;
  }

  uint32_t capacity() const { return slots_; }

  // For the producer: returns the next free slot after `ahead` slots that are filled but not yet published.
  // Returns nullptr if the ring is full.
  Wqe* reserve(uint32_t ahead = 0) {
    const uint32_t next = posted_.load(std::memory_order_relaxed) + ahead;
    if (next - consumed_.load(std::memory_order_acquire) >= slots_) return nullptr;
    return &at(next);
  }
  // Returns the number of free slots, which the producer may fill. Slots that are filled but not published
  // count as free. The consumer only increases this number.
  uint32_t room() const {
    return slots_ - (posted_.load(std::memory_order_relaxed) - consumed_.load(std::memory_order_acquire));
  }
  // Gives the next `count` slots, which are filled, to the consumer.
  void publish(uint32_t count = 1) {
    posted_.store(posted_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  // Like publish(), for a producer that afterwards reads a flag of the consumer. The consumer sets the flag
  // first and then reads posted(). If the consumer's store of the flag is sequentially consistent, as the
  // store here is, the producer sees the flag or the consumer sees the requests.
  void publish_and_look(uint32_t count) {
    posted_.store(posted_.load(std::memory_order_relaxed) + count, std::memory_order_seq_cst);
  }

  // ---- consumer
  uint32_t posted() const { return posted_.load(std::memory_order_seq_cst); }
  uint32_t consumed() const { return consumed_.load(std::memory_order_relaxed); }
  bool empty() const { return posted() == consumed(); }
  uint32_t waiting() const { return posted() - consumed(); }
  const Wqe& at(uint32_t index) const { return const_cast<WorkQueue*>(this)->at(index); }
  Wqe& at(uint32_t index) {
    return *reinterpret_cast<Wqe*>(ring_.data() + size_t{index & (slots_ - 1)} * stride_);
  }
  // Frees the oldest `count` slots.
  void consume(uint32_t count = 1) { consumed_.store(consumed() + count, std::memory_order_release); }

  // Takes over the other queue with its posted requests. REQUIRES: no producer, no consumer
  void replace(WorkQueue&& other) {
    consumed_.store(other.consumed_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    posted_.store(other.posted_.load(std::memory_order_relaxed), std::memory_order_release);
    *this = std::move(other);
  }

  // Drops everything posted. (A producer may publish more right after.)
  void clear() { consumed_.store(posted(), std::memory_order_release); }

 private:
  MappedArray ring_;
  uint32_t slots_ = 0;
  uint32_t stride_ = 0;
  alignas(kCacheLine) std::atomic<uint32_t> posted_{0};
  alignas(kCacheLine) std::atomic<uint32_t> consumed_{0};
};

using SendQueue = WorkQueue<SendWqe>;
using RecvQueue = WorkQueue<RecvWqe>;

// Numbers of RDMA FLUSH in verbs.h of rdma-core 45 and later. The older headers that we build with do not
// define them.
inline constexpr uint8_t kFlushOpcode = 14;                              // IBV_WR_FLUSH
inline constexpr auto kFlushCompletion = static_cast<ibv_wc_opcode>(8);  // IBV_WC_FLUSH
inline constexpr uint32_t kFlushOperation = 1u << 11;                    // IBV_QP_EX_WITH_FLUSH
static_assert(kFlushOpcode > IBV_WR_DRIVER1 && kFlushOpcode < IBV_WR_ATOMIC_WRITE);

// Parameters of a FLUSH.
struct FlushRange {
  uint64_t address;
  uint64_t length;
  uint32_t rkey;
  uint8_t placement;    // see adapter/memory/region.h
  uint8_t selectivity;  // see adapter/memory/region.h
};

// Read and write the parameters of a FLUSH request. They are stored in the fields for remote memory and
// atomic operands.
inline FlushRange flush_range(const SendWqe& wqe) {
  return {wqe.remote_address, wqe.compare_add, wqe.rkey, static_cast<uint8_t>(wqe.swap),
          static_cast<uint8_t>(wqe.swap >> 8)};
}
inline void set_flush_range(SendWqe& wqe, const FlushRange& range) {
  wqe.remote_address = range.address;
  wqe.compare_add = range.length;
  wqe.rkey = range.rkey;
  wqe.swap = uint64_t{range.selectivity} << 8 | range.placement;
}

}  // namespace verbena::queues
