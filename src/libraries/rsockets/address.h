// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::rsockets {

// An IPv4 or IPv6 socket address with its port, or no address (family 0).
class Address {
 public:
  Address() { std::memset(&storage_, 0, sizeof storage_); }

  // Copies a socket address. Errors: EINVAL if `address` is null or `length` is too short for the family;
  // EAFNOSUPPORT if the family is neither IPv4 nor IPv6.
  static Result<Address> from(const sockaddr* address, socklen_t length);
  // Copies a socket address. Returns an Address of family 0 for a family other than IPv4 and IPv6. REQUIRES:
  // `address` is complete for its family
  static Address from(const sockaddr* address);
  static Address ipv4(in_addr_t address, in_port_t port);
  static Address ipv6(const in6_addr& address, in_port_t port, uint32_t flow_info = 0);
  // Returns the wildcard address of a family, with port 0.
  static Address any(int family);

  const sockaddr* get() const { return &storage_.any; }
  sockaddr* get() { return &storage_.any; }
  socklen_t size() const;
  int family() const { return storage_.any.sa_family; }
  // Returns the port in network byte order. IPv4 and IPv6 addresses have the port at the same offset.
  in_port_t port() const { return storage_.v4.sin_port; }
  void set_port(in_port_t port) { storage_.v4.sin_port = port; }
  const sockaddr_in& v4() const { return storage_.v4; }
  const sockaddr_in6& v6() const { return storage_.v6; }
  bool is_wildcard() const;

  // Copies the address as getsockname(2) does: at most `*length` bytes. Sets `*length` to the address's full
  // length.
  void copy_to(sockaddr* to, socklen_t* length) const;

  // Compares family, address, port and IPv6 scope. Ignores flow labels, which do not identify an endpoint.
  friend bool operator==(const Address& a, const Address& b) { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const Address& a, const Address& b);

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_;
};

// The size of each receive buffer, in bytes. A datagram, with its DatagramHeader or UdpHeader, is no longer
// than this, whether it goes through queue pairs or the UDP socket.
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

// Precedes each datagram through the UDP socket. This socket carries the datagrams to receivers whose queue
// pair the sender does not know yet, and datagrams too large for one packet of the path. Names the queue pair
// for replies. 16 bytes for IPv4, 28 for IPv6.
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
