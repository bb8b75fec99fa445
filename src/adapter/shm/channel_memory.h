// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "adapter/shm/layout.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// The memory of a channel, mapped in this process. Two processes have it: the one that made it lends the
// other the file (base/sealed_file.h).
class ChannelMapping {
 public:
  // New memory, formatted. The file is for the other process and may be closed afterwards. Errors: the
  // kernel's, ENOMEM or EMFILE.
  static Result<std::pair<ChannelMapping, UniqueFd>> make();
  // The same without a mapping, which another process with the file could make long to remove.
  static Result<UniqueFd> make_file();
  // What another process has made. EPROTO: it is no channel, or of another layout.
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

// Half of a channel to a process of another user (shm::ChannelHalf): `Half` is const if the other process has
// made it, and only it writes there.
//
// The maker seals the file before anybody else has it. A seal that is added later would wait for the file's
// lock, which another process with the file can hold for as long as it likes.
//
// One page is pinned for as long as the mapping lives, so that no other process can have the kernel gather
// the pages into a large one (pin_first_page()).
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

  // Pins the first page of its file, which takes a descriptor. Errors: those of pin_first_page().
  Result<void> pin(int file);

  auto& lane() const { return half_->lane; }

 private:
  OwnFd pin_;
  Half* half_;
};
using OwnHalf = HalfMapping<shm::ChannelHalf>;
using TheirHalf = HalfMapping<const shm::ChannelHalf>;

// New memory, formatted and sealed. The file is for the other process and may be closed afterwards. Errors:
// EOPNOTSUPP before Linux 5.1, which cannot forbid holes; those of HalfMapping::pin(); others of the kernel,
// ENOMEM or EMFILE.
Result<std::pair<OwnHalf, UniqueFd>> make_half();
// Maps the half of another process, and locks what is used of it in memory (mlock(2)): its maker could have a
// page swapped out that its control group does not let in again, and an access would never return. The
// mapping is not inherited by a child. EPROTO: it is no half of a channel, has another layout, or processes
// other than its maker can change it. Errors of mlock(2), ENOMEM, EPERM or EAGAIN, and of
// HalfMapping::pin(). Waits for locks that the other process can hold.
Result<TheirHalf> map_half(int file);
bool is_sealed_half(int file);

// Allocates pages of a channel that this process writes, so that a shortage of memory raises no SIGBUS later.
// `begin` and `bytes` are rounded to whole pages. False: there is no memory. Before Linux 5.14 the whole
// channel is allocated when it is made, and this does nothing.
bool allocate_pages(std::byte* begin, size_t bytes);

}  // namespace verbena::engine
