// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/port.h"
#include "adapter/net/udp/socket_address.h"
#include "base/bytes.h"
#include "base/own_fd.h"
#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The information about a received datagram besides its data.
struct DatagramOrigin {
  roce::Path path;  // from the sender to this host
  uint16_t source_port = 0;
  uint32_t segment_bytes = 0;    // of each packet if GRO merged several; else 0
  bool has_destination = false;  // whether the kernel reported the destination; else packets are dropped
  bool reassembled = false;      // whether it came in IP fragments
};

// Reads the origin from the source address and the control messages of a datagram. REQUIRES: the datagram was
// received on a socket with set_receive_options()
DatagramOrigin origin_of(msghdr& message);

// Splits datagrams into the packets that GRO has merged. Passes on valid RoCEv2 packets whose destination QPN
// is in the slot or is the multicast QPN. Counts all packets in `counters`. One thread at a time.
class DatagramSplitter {
 public:
  // `port` is the UDP port of the receiving socket, which the ICRC covers.
  DatagramSplitter(uint16_t port, uint32_t slot, PortCounters& counters)
      : port_(port), slot_(slot), counters_(counters) {}

  // Passes the datagram's valid packets to the handler. Returns the number of packets in the datagram,
  // including dropped ones.
  uint32_t split(PacketHandler& handler, const DatagramOrigin& origin, ConstBytes datagram);
  // Counts a dropped packet.
  void drop(DropReason reason) { ++counters_.dropped[static_cast<size_t>(reason)]; }

 private:
  void take(PacketHandler& handler, const DatagramOrigin& origin, roce::IcrcChecker& icrc,
            ConstBytes udp_payload, uint32_t index);

  uint16_t port_;
  uint32_t slot_;
  PortCounters& counters_;
};

// Decides how many datagrams to ask for in the next read of a socket. On an idle socket a read asks for one
// datagram, so that a successful read is not followed by a system call that finds nothing. While small
// datagrams keep coming, a read asks for several, to save system calls.
class ReadAhead {
 public:
  uint32_t wanted() const { return wanted_; }
  // Adapts wanted() to the result of a read that asked for `asked` datagrams and got `got`. `largest` is the
  // size in bytes of the largest datagram that was read, or 0.
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

  // Return the data and the header of a datagram that the last read() got, valid until the next read().
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
// Calls take(index) for each datagram, where `index` is the datagram's place in the batch. take() returns the
// number of packets in the datagram, or a negative number to make receive_batches() return at once.
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

// The receiving half of a UdpPort, also used for the socket of a multicast group. Reads datagrams, splits
// datagrams that GRO has merged, and passes on valid RoCEv2 packets whose destination QPN is in the slot or
// is the multicast QPN. One thread at a time.
class Receiver {
 public:
  // `port` is the socket's UDP port, which the ICRC covers.
  Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  int fd() const { return socket_.get(); }
  bool is_whole() const { return socket_.is_ours(); }
  void close() { socket_.reset(); }

 private:
  OwnFd socket_;
  DatagramSplitter splitter_;
  ReadAhead ahead_;
  DatagramBatch batch_;
};

}  // namespace verbena::net
