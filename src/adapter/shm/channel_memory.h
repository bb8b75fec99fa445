// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "adapter/shm/layout.h"
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

}  // namespace verbena::engine
