// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "network/offload.h"

namespace verbena::network {

// A tap device whose frames this program sends and receives. The host's frames arrive before offloads:
// without checksums, and with up to 64 KiB of TCP or UDP payload in one frame. The virtio header says so.
// Frames written may be like that, too. One thread may read while any thread writes.
class Tap {
 public:
  // Larger than any frame: 64 KiB of IP and its headers.
  static constexpr size_t kMaxFrameBytes = 66 * 1024;

  struct Read {
    enum class Status : uint8_t { kFrame, kNothing, kGone } status;
    uint32_t bytes = 0;
  };

  // Creates the device in the thread's network namespace. The destructor removes it. Throws
  // std::system_error.
  explicit Tap(const std::string& name);

  int fd() const { return fd_.get(); }
  Read read(Offload& offload, Bytes frame) const;
  // False: the host refused the frame, for example because the device is down.
  bool write(const Offload& offload, ConstBytes headers, ConstBytes payload) const;

 private:
  UniqueFd fd_;
};

}  // namespace verbena::network
