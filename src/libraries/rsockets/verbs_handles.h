// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <memory>

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "base/result.h"

namespace verbena::rsockets {

// Smart pointers that own a verbs object and destroy it.
template <auto kDestroy>
struct Destroyer {
  template <class Object>
  void operator()(Object* object) const {
    kDestroy(object);
  }
};
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using AddressHandle = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;
using Region = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;

// Zeroed and registered memory in separate pages, so that no application data share a page with memory that a
// peer may write.
class RegisteredPages {
 public:
  RegisteredPages() = default;
  ~RegisteredPages() {
    region_.reset();
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  RegisteredPages(const RegisteredPages&) = delete;
  RegisteredPages& operator=(const RegisteredPages&) = delete;

  Result<void> open(ibv_pd* domain, size_t bytes, int access) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail(ENOMEM);
    memory_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
    region_.reset(ibv_reg_mr(domain, memory_, bytes_, static_cast<unsigned>(access)));
    if (!region_) return fail(errno);
    return {};
  }

  std::byte* data() const { return memory_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(memory_); }
  uint32_t lkey() const { return region_->lkey; }
  uint32_t rkey() const { return region_->rkey; }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  Region region_;
};

}  // namespace verbena::rsockets
