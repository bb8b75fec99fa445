// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/queues/mapped_array.h"

namespace verbena::adapter {

// Allocates the rings of CQs, QPs and other queues with the functions that the application gave to a parent
// domain (ibv_alloc_parent_domain(3)).
class CustomMemory final : public queues::RingMemory {
 public:
  using Allocate = decltype(ibv_parent_domain_init_attr::alloc);
  using Free = decltype(ibv_parent_domain_init_attr::free);

  // REQUIRES: both functions are set, and the domain outlives the rings
  CustomMemory(ibv_pd* domain, Allocate allocator, Free deallocator, void* context)
      : domain_(domain), allocate_(allocator), free_(deallocator), context_(context) {}

  std::byte* allocate(size_t bytes, size_t alignment, queues::RingKind kind) override {
    return static_cast<std::byte*>(allocate_(domain_, context_, bytes, alignment, resource_type(kind)));
  }
  void release(std::byte* at, queues::RingKind kind) override {
    free_(domain_, context_, at, resource_type(kind));
  }

 private:
  // Returns the resource type that is passed to the application's functions. The upper 32 bits are the
  // driver's number (enum rdma_driver_id), here 0 because this adapter has none. The lower 32 bits are the
  // kind of ring.
  static uint64_t resource_type(queues::RingKind kind) { return static_cast<uint64_t>(kind); }

  ibv_pd* const domain_;
  const Allocate allocate_;
  const Free free_;
  void* const context_;
};

}  // namespace verbena::adapter
