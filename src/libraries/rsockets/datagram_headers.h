// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "libraries/rsockets/address.h"

namespace verbena::rsockets {

// What a datagram and its header have room for in every receive buffer, of either path.
inline constexpr size_t kDatagramBytes = 2048;

// Stands before each datagram that travels from UD queue pair to UD queue pair: whom it is from, as a UDP
// address. 8 bytes for IPv4, 24 for IPv6.
struct DatagramHeader {
  static constexpr size_t kMaxBytes = 24;
  Address source;

  static constexpr size_t size(int family) { return family == AF_INET ? 8 : 24; }
  size_t size() const { return size(source.family()); }
  // Returns the length written.
  size_t encode(std::byte* to) const;
  // Errors: EPROTO for what is no such header.
  static Result<DatagramHeader> decode(ConstBytes from);
};

// Stands before each datagram that travels through the UDP socket, as long as the sender does not know the
// receiver's queue pair: which queue pair answers should go to. 16 bytes for IPv4, 28 for IPv6.
struct UdpHeader {
  static constexpr size_t kMaxBytes = 28;
  enum class Kind : uint8_t {
    kData = 0,
    kControl = 7
  };  // with data of the user's; only the queue pair's number

  Kind kind = Kind::kData;
  uint32_t qpn = 0;
  Address source;  // the sender's own idea of its address; what the socket says counts

  size_t size() const { return source.family() == AF_INET ? 16 : 28; }
  size_t encode(std::byte* to) const;
  // `family` is that of the address it came from. Errors: EPROTO.
  static Result<UdpHeader> decode(ConstBytes from, int family);
};

}  // namespace verbena::rsockets
