// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/udp/control_message.h"
#include "adapter/net/udp/socket_address.h"
#include "base/bytes.h"

namespace verbena::net {

// Decides how many datagrams to ask for in the next read of a socket. On an idle socket a read asks for one
// datagram, so that a successful read is not followed by a system call that finds nothing. While small
// datagrams keep coming, a read asks for several, to save system calls.
class ReadAhead {
 public:
  uint32_t wanted() const { return wanted_; }
  // Notes a read that asked for `asked` datagrams and got `got`, the largest of `largest` bytes.
  void adapt(uint32_t asked, uint32_t got, uint32_t largest);

 private:
  // A datagram of at least this many bytes is read by a system call of its own. So it is still in the CPU
  // cache when it is processed.
  static constexpr uint32_t kLargeMessage = 8192;
  // After this many successive reads of one small datagram each, a read asks for several.
  static constexpr uint32_t kStreak = 4;

  uint32_t wanted_ = 1;
  uint32_t streak_ = 0;  // successive reads of small datagrams that got as many as they asked for
};

// Buffers for several datagrams, filled by one read. One thread at a time.
class DatagramBatch {
 public:
  static constexpr uint32_t kMax = 8;

  // Datagrams longer than `longest` bytes are truncated.
  explicit DatagramBatch(size_t longest = 65536);

  // Reads up to `wanted` datagrams from a socket and returns how many: 0 if none has come, or after an error.
  // Never blocks. REQUIRES: wanted <= kMax
  uint32_t read(int socket, uint32_t wanted);

  // The data and the header of a datagram of the last read().
  ConstBytes data(uint32_t index) const {
    return {static_cast<std::byte*>(data_[index].iov_base), messages_[index].msg_len};
  }
  msghdr& message(uint32_t index) { return messages_[index].msg_hdr; }

 private:
  void prepare(uint32_t message);

  std::unique_ptr<std::byte[]> buffers_;
  std::array<mmsghdr, kMax> messages_{};
  std::array<iovec, kMax> data_{};
  std::array<SocketAddress, kMax> names_{};
  struct alignas(cmsghdr) Control {
    std::array<std::byte, kControlBytes> bytes;
  };
  std::array<Control, kMax> controls_{};
};

// Reads datagrams from a socket until they contained at least `budget` packets, and returns the number of
// packets. Stops earlier after a read that got fewer datagrams than it asked for, or that asked for only one.
// Calls take(index) for each datagram, which returns the number of packets in the datagram. A negative number
// makes receive_batches() return at once.
template <class Take>
uint32_t receive_batches(int socket, uint32_t budget, ReadAhead& ahead, DatagramBatch& batch, Take take) {
  uint32_t packets = 0;
  while (packets < budget) {
    const uint32_t asked = std::min(ahead.wanted(), budget - packets);
    const uint32_t got = batch.read(socket, asked);
    size_t largest = 0;
    for (uint32_t i = 0; i < got; ++i) {
      const int64_t had = take(i);
      if (had < 0) return packets;
      packets += static_cast<uint32_t>(had);
      largest = std::max(largest, batch.data(i).size());
    }
    ahead.adapt(asked, got, static_cast<uint32_t>(largest));
    if (got < asked || asked == 1) break;
  }
  return packets;
}

}  // namespace verbena::net
