// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <verbena/async/loop.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs.hpp>

// The objects that all connections of a loop share: protection domains, completion queues, buffers.
namespace verbena::detail {

// Receives the completions of work requests whose number (wr_id) is id(): the address of this object.
class completion_target {
 public:
  virtual void on_completion(const ibv_wc& done) = 0;
  std::uint64_t id() { return reinterpret_cast<std::uintptr_t>(this); }

 protected:
  ~completion_target() = default;
};

// A completion queue that a loop polls. Hands each completion to its target.
class cq_source final : public event_source {
 public:
  cq_source(loop& io, ibv_context* device, std::uint32_t entries)
      : io_(io), channel_(make_channel(device)), queue_(make_cq(device, entries, channel_)), room_(entries) {
    io_.add(*this);
  }
  ~cq_source() override { io_.remove(*this); }

  const cq& queue() const { return queue_; }
  // Reserve and release places for the completions of a queue pair. take_room() returns false if too few
  // places are left.
  bool take_room(std::uint32_t entries) {
    if (entries > room_) return false;
    room_ -= entries;
    return true;
  }
  void give_room(std::uint32_t entries) { room_ += entries; }

  // Hands the completions that are in the queue now to their targets.
  void drain() {
    for (int taken = 0; taken <= queue_.get()->cqe && poll();) taken += kBatch;
  }
  bool poll() override {
    const auto taken = queue_.poll<kBatch>();
    for (const completion& each : taken) {
      reinterpret_cast<completion_target*>(each.id())->on_completion(each.get());
    }
    return !taken.empty();
  }
  bool arm() override {
    while (channel_.wait()) {
    }
    return queue_.arm() && !poll();
  }
  int fd() const override { return channel_.fd(); }

 private:
  static constexpr int kBatch = 32;

  static completion_channel make_channel(ibv_context* device) {
    ibv_comp_channel* const made = ibv_create_comp_channel(device);
    if (made == nullptr) throw exception(failure(device, "make a completion channel on", errno));
    ::fcntl(made->fd, F_SETFL, ::fcntl(made->fd, F_GETFL) | O_NONBLOCK);
    return completion_channel(own(made, ibv_destroy_comp_channel));
  }
  static cq make_cq(ibv_context* device, std::uint32_t entries, const completion_channel& channel) {
    ibv_cq* const made = ibv_create_cq(device, static_cast<int>(entries), nullptr, channel.get(), 0);
    if (made == nullptr) throw exception(failure(device, "make a completion queue on", errno));
    return cq(own(made, ibv_destroy_cq, channel.handle()));
  }

  loop& io_;
  completion_channel channel_;
  cq queue_;
  std::uint32_t room_;
};

// Registered memory in blocks whose lengths are powers of two. The pool uses returned blocks again. Blocks
// below 64 KiB stay registered until the end of the pool. A larger block is freed on its return if more than
// kMaxSpare bytes of such blocks would be unused: a peer cannot make the program keep memory that it needed
// once. The pool's regions allow no remote access, because one remote key would open all blocks of a region.
class buffer_pool final : public block_owner {
 public:
  explicit buffer_pool(const pd& domain) : domain_(domain) {}

  // The longest block in bytes, which is the longest message of RDMA. So lengths of blocks fit into 32 bits.
  static constexpr std::size_t kMaxBlock = std::size_t{1} << 31;
  // Returns a block of `size` bytes. Throws exception if there is no memory, or with EMSGSIZE if `size`
  // exceeds kMaxBlock.
  slice take(std::size_t size) {
    if (size > kMaxBlock)
      throw exception(error("make a buffer", EMSGSIZE, {}, "an RDMA message has at most 2 GiB"));
    const unsigned wanted = class_of(size);
    const std::size_t bytes = std::size_t{1} << wanted;
    std::vector<slice>& blocks = free_[wanted];
    if (blocks.empty()) {
      if (bytes >= kRegion) return add_large(bytes).first(size);
      grow(bytes, blocks);
    }
    const slice taken = blocks.back();
    blocks.pop_back();
    if (bytes >= kRegion) spare_bytes_ -= bytes;
    return taken.first(size);
  }
  buffer take_buffer(std::size_t size) { return {take(size), *this}; }
  // Returns the bytes of all blocks that have a region of their own, in use or free. At most kMaxSpare of
  // them are free.
  std::size_t large_bytes() const {
    std::size_t all = 0;
    for (const auto& [at, each] : large_) all += each.size();
    return all;
  }
  static constexpr std::size_t kMaxSpare = std::size_t{4} << 20;
  void give_back(const slice& taken) override {
    const unsigned its = class_of(taken.size());
    const std::size_t bytes = std::size_t{1} << its;
    if (bytes >= kRegion) {
      if (bytes > kMaxSpare - spare_bytes_) {
        large_.erase(taken.data());
        return;
      }
      spare_bytes_ += bytes;
    }
    free_[its].push_back(slice({taken.data(), bytes}, taken.lkey()));
  }

 private:
  static constexpr std::size_t kLeastBlock = 64;
  // Smaller blocks share a region, others have regions of their own.
  static constexpr std::size_t kRegion = std::size_t{64} << 10;
  static unsigned class_of(std::size_t size) {
    return static_cast<unsigned>(std::bit_width(std::max(size, kLeastBlock) - 1));
  }
  slice add_large(std::size_t bytes) {
    region added = domain_.allocate(bytes).value();
    std::byte* const at = added.data();
    return large_.emplace(at, std::move(added)).first->second;
  }
  void grow(std::size_t bytes, std::vector<slice>& blocks) {
    regions_.push_back(domain_.allocate(kRegion).value());
    const region& added = regions_.back();
    for (std::size_t at = 0; at + bytes <= added.size(); at += bytes) blocks.push_back(added.part(at, bytes));
  }

  const pd& domain_;
  std::vector<region> regions_;
  std::unordered_map<const std::byte*, region> large_;
  std::size_t spare_bytes_ = 0;  // of free large blocks
  std::map<unsigned, std::vector<slice>> free_;
};

class receive_pool;

// A device of a loop. Connections share its protection domain, so that memory that is registered once serves
// all of them.
class adapter {
 public:
  adapter(loop& io, ibv_context* device)
      : io_(io), device_(device), domain_(make_pd(device)), buffers_(domain_) {}

  const pd& domain() const { return domain_; }
  buffer_pool& buffers() { return buffers_; }
  // Returns the pool of shared receives for these values, which the first call makes. `message_size`: bytes
  // of each receive. The other arguments are those of receive_shares. Throws exception.
  receive_pool& shared_receives(std::uint32_t message_size, std::uint32_t max_connections,
                                std::uint32_t spare);
  // Returns a completion queue with places for this many completions, and reserves the places. Throws
  // exception.
  cq_source& queue_for(std::uint32_t entries) {
    for (const auto& each : queues_) {
      if (each->take_room(entries)) return *each;
    }
    queues_.push_back(std::make_unique<cq_source>(io_, device_, std::max(entries, kEntries)));
    queues_.back()->take_room(entries);
    return *queues_.back();
  }

 private:
  static constexpr std::uint32_t kEntries = 4096;
  static pd make_pd(ibv_context* device) {
    ibv_pd* const made = ibv_alloc_pd(device);
    if (made == nullptr) throw exception(failure(device, "make a protection domain on", errno));
    return pd(own(made, ibv_dealloc_pd));
  }

  loop& io_;
  ibv_context* device_;
  pd domain_;
  buffer_pool buffers_;
  std::map<std::array<std::uint32_t, 3>, std::shared_ptr<receive_pool>> pools_;
  std::vector<std::unique_ptr<cq_source>> queues_;
};

}  // namespace verbena::detail
