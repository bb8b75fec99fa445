// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "network/offload.h"

namespace verbena::network {

// A network device whose cable ends in this program. What the host sends comes as the host's stack made it:
// checksums not filled in yet, and up to 64 KiB of TCP or UDP payload in one frame (segmentation offload);
// the header of virtio says so. The same may be written. One thread may read while any thread writes.
class Tap {
 public:
  // More than any frame has: 64 KiB of IP and its headers.
  static constexpr size_t kMaxFrameBytes = 66 * 1024;

  struct Read {
    enum class Status : uint8_t { kFrame, kNothing, kGone } status;
    uint32_t bytes = 0;
  };

  // Makes the device, in this thread's network namespace; it is gone when this is. Throws std::system_error.
  explicit Tap(const std::string& name);

  int fd() const { return fd_.get(); }
  Read read(Offload& offload, Bytes frame) const;
  // False: the host did not take it, as a device does not that is down.
  bool write(const Offload& offload, ConstBytes headers, ConstBytes payload) const;

 private:
  UniqueFd fd_;
};

}  // namespace verbena::network
