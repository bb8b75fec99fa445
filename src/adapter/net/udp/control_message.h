// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

#include <sys/socket.h>

namespace verbena::net {

// Buffer size for all control messages of one datagram: packet information, traffic class, hop limit, flow
// label and segment size.
inline constexpr size_t kControlBytes = 192;

// Appends control messages to a buffer for sendmsg(2), behind its first `used` bytes. REQUIRES: the buffer is
// aligned as cmsghdr is, and has room for the messages
class ControlWriter {
 public:
  ControlWriter(std::byte* buffer, size_t used) : buffer_(buffer), used_(used) {}

  template <class T>
  void put(int level, int type, const T& value) {
    cmsghdr header{};
    header.cmsg_len = CMSG_LEN(sizeof value);
    header.cmsg_level = level;
    header.cmsg_type = type;
    std::memcpy(buffer_ + used_, &header, sizeof header);
    std::memcpy(buffer_ + used_ + CMSG_LEN(0), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
  }

  size_t used() const { return used_; }

 private:
  std::byte* buffer_;
  size_t used_;
};

// Returns the value of a received control message. REQUIRES: its level and type are those of a T
template <class T>
T control_value(const cmsghdr* message) {
  T value;
  std::memcpy(&value, CMSG_DATA(message), sizeof value);
  return value;
}

}  // namespace verbena::net
