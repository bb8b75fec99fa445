// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "adapter/shm/layout.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// The memory of a channel, mapped in this process. The process that makes the memory sends the file
// (base/sealed_file.h) to the other process, which maps it, too.
class ChannelMapping {
 public:
  // Creates and formats the memory of a channel. Returns the mapping, and the file for the other process; the
  // file may be closed after it was sent. Errors: ENOMEM, EMFILE, or others of the kernel.
  static Result<std::pair<ChannelMapping, UniqueFd>> make();
  // Like make(), but unmaps the memory before it returns. Once another process has the file, it could make
  // munmap(2) take long.
  static Result<UniqueFd> make_file();
  // Returns a file of the same size that takes no memory. For an offer to a process of another user, which
  // does not use the file but answers with a half.
  static Result<UniqueFd> make_empty_file();
  // Maps the memory that another process has made. Errors: EPROTO if the file is no channel or has another
  // layout; those of mmap(2).
  static Result<ChannelMapping> map(int file);

  ChannelMapping(ChannelMapping&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  ChannelMapping& operator=(ChannelMapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~ChannelMapping();

  shm::ChannelMemory& memory() const { return *memory_; }

 private:
  explicit ChannelMapping(shm::ChannelMemory* memory) : memory_(memory) {}
  static Result<ChannelMapping> map_file(int file);

  shm::ChannelMemory* memory_;
};

// One half of a channel to a process of another user (shm::ChannelHalf). The process that makes a half is the
// only one that writes to it. `Half` is const if the other process has made it.
//
// The maker seals the file before anybody else has it. A seal that is added later would wait for the file's
// lock, which another process with the file can hold for as long as it likes.
//
// One page stays pinned as long as the mapping lives. So no other process can make the kernel merge the pages
// into a large one, for which our accesses would have to wait (pin_first_page()).
template <class Half>
class HalfMapping {
 public:
  explicit HalfMapping(Half* half) : half_(half) {}
  HalfMapping(HalfMapping&& other) noexcept
      : pin_(std::move(other.pin_)), half_(std::exchange(other.half_, nullptr)) {}
  HalfMapping& operator=(HalfMapping&& other) noexcept {
    std::swap(pin_, other.pin_);
    std::swap(half_, other.half_);
    return *this;
  }
  ~HalfMapping();

  // Pins the first page of the half's file, which takes one descriptor. Errors: those of pin_first_page().
  Result<void> pin(int file);

  auto& lane() const { return half_->lane; }

 private:
  OwnFd pin_;
  Half* half_;
};
using OwnHalf = HalfMapping<shm::ChannelHalf>;
using TheirHalf = HalfMapping<const shm::ChannelHalf>;

// Creates a half, formatted and sealed. The file is for the other process and may be closed after it was
// sent. Errors: EOPNOTSUPP before Linux 5.1, where files cannot be sealed against holes; those of
// HalfMapping::pin(); ENOMEM, EMFILE or others of the kernel.
Result<std::pair<OwnHalf, UniqueFd>> make_half();
// Maps a half that another process has made, and locks the used part of it in memory (mlock(2)). Otherwise
// the maker could have a page swapped out, and its memory limit (cgroup) could keep the kernel from reading
// the page back: our access would never return. A child does not inherit the mapping. Waits for locks that
// the maker can hold. Errors: EPROTO if it is no half of a channel, has another layout, or processes other
// than its maker can change it; ENOMEM, EPERM or EAGAIN of mlock(2); those of HalfMapping::pin().
Result<TheirHalf> map_half(int file);
bool is_sealed_half(int file);

// Allocates pages of a channel that this process writes, so that a shortage of memory raises no SIGBUS later.
// `begin` and `bytes` are rounded to whole pages. Returns false if there is no memory. Before Linux 5.14 the
// whole channel is allocated when it is made; then this does nothing and returns true.
bool allocate_pages(std::byte* begin, size_t bytes);

}  // namespace verbena::engine
