// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/key_table.h"
#include "adapter/memory/window.h"
#include "base/bytes.h"
#include "base/random.h"

namespace verbena::transport {

inline constexpr memory::PdId kTestPd = 7;
inline constexpr memory::Access kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// A buffer and its memory region.
class Buffer {
 public:
  Buffer(size_t bytes, memory::Access access, memory::PdId pd)
      : storage_((bytes + 7) / 8 + 1), bytes_(bytes) {
    region_.base = data();
    region_.iova = reinterpret_cast<uint64_t>(data());
    region_.length = bytes;
    region_.access = access;
    region_.pd = pd;
  }

  std::byte* data() { return reinterpret_cast<std::byte*>(storage_.data()); }
  size_t size() const { return bytes_; }
  Bytes bytes() { return {data(), bytes_}; }
  Bytes bytes(size_t offset, size_t length) { return bytes().subspan(offset, length); }
  uint64_t& word(size_t index) { return storage_[index]; }
  memory::Region& region() { return region_; }
  uint64_t address(size_t offset = 0) const { return region_.iova + offset; }
  uint32_t key() const { return region_.key; }
  ibv_sge sge(size_t offset, size_t length) const {
    return {address(offset), static_cast<uint32_t>(length), key()};
  }
  ibv_sge sge() const { return sge(0, bytes_); }

  void fill(uint64_t seed) {
    Random random(seed);
    for (uint64_t& word : storage_) word = random.next();
  }

 private:
  std::vector<uint64_t> storage_;
  size_t bytes_;
  memory::Region region_;
};

// The registered memory of one host.
class TestMemory {
 public:
  explicit TestMemory(uint64_t secret = 1) : keys_(secret, 1 << 16) { memory::install_fault_guard(); }

  Buffer& add(size_t bytes, memory::Access access = kAllAccess, memory::PdId pd = kTestPd) {
    Buffer& buffer = buffers_.emplace_back(bytes, access, pd);
    if (!keys_.insert(&buffer.region())) abort();
    return buffer;
  }
  memory::Region& add_window(memory::RegionKind kind, memory::PdId pd = kTestPd) {
    memory::Region& window = windows_.emplace_back();
    memory::make_window(window, kind, pd);
    if (!keys_.insert(&window)) abort();
    return window;
  }
  void deregister(Buffer& buffer) { keys_.remove(buffer.key()); }
  memory::KeyTable& keys() { return keys_; }

 private:
  memory::KeyTable keys_;
  std::deque<Buffer> buffers_;
  std::deque<memory::Region> windows_;
};

}  // namespace verbena::transport
