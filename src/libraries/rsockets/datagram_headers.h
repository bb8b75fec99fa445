// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "libraries/rsockets/address.h"

namespace verbena::rsockets {

// The size of each receive buffer, in bytes: the longest datagram including its header, through queue pairs
// or the UDP socket.
inline constexpr size_t kDatagramBytes = 2048;

// Precedes each datagram between UD queue pairs: names the sender's UDP address. 8 bytes for IPv4, 24 for
// IPv6.
struct DatagramHeader {
  static constexpr size_t kMaxBytes = 24;
  Address source;

  static constexpr size_t size(int family) { return family == AF_INET ? 8 : 24; }
  size_t size() const { return size(source.family()); }
  // Writes the header to `to`, which has room for kMaxBytes. Returns the length written.
  size_t encode(std::byte* to) const;
  // Parses the header at the beginning of `from`. Errors: EPROTO if there is no valid header.
  static Result<DatagramHeader> decode(ConstBytes from);
};

// Precedes each datagram through the UDP socket, which carries datagrams while the sender does not know the
// receiver's queue pair, and large ones. Names the queue pair for replies. 16 bytes for IPv4, 28 for IPv6.
struct UdpHeader {
  static constexpr size_t kMaxBytes = 28;
  // kData: application data follow. kControl: only announces the queue pair number.
  enum class Kind : uint8_t { kData = 0, kControl = 7 };

  Kind kind = Kind::kData;
  uint32_t qpn = 0;
  Address source;  // the sender's local address; the receiver uses the one that recvfrom() reports

  size_t size() const { return source.family() == AF_INET ? 16 : 28; }
  size_t encode(std::byte* to) const;
  // Parses the header at the beginning of `from`, which came from an address of `family`. Errors: EPROTO if
  // there is no valid header.
  static Result<UdpHeader> decode(ConstBytes from, int family);
};

}  // namespace verbena::rsockets
