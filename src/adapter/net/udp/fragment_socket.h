// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/net/udp/send_sockets.h"
#include "base/result.h"

namespace verbena::net {

// A socket that sends packets that are longer than their path's MTU, in IP fragments.
//
// The ICRC over IPv4 covers the identification and the flag "don't fragment". The kernel chooses the
// identification of a datagram that may be fragmented, and programs cannot set it. But on a connected socket
// the kernel counts: each datagram gets the identification of the previous datagram plus 1
// (ip_select_ident_segs(), Linux 5.17). So a FragmentSocket is connected, and names the destination with each
// datagram. It is connected to an address of its own host, so that it gets no ICMP errors. To learn the
// current count, a FragmentSocket sends a few datagrams to a second socket of this process. The classic BPF
// filter of the second socket reads the IP header, and truncates each datagram to a length that encodes one
// byte of the identification.
//
// If the kernel does not count this way, or a firewall drops these datagrams, the identification stays
// unknown. Then packets carry the ICRC of a packet that must not be fragmented: Verbena's receivers accept
// this ICRC, the kernel's rxe does not. The IPv6 header has no identification. One thread at a time.
class FragmentSocket {
 public:
  // Opens a socket for paths with the source address and the network device of `path`.
  static Result<std::unique_ptr<FragmentSocket>> open(const roce::Path& path, uint32_t send_buffer_bytes);

  const SendSocket& socket() const { return *socket_; }
  bool is_for(const roce::Path& path) const { return socket_->is_for(path); }

  // Returns the identification that the next datagram will have (IPv4), or nullopt if it is unknown. Tries
  // attempts to learn the count if necessary, up to three times; each probe waits at most 20 ms.
  std::optional<uint16_t> next_identification();
  // Adds this many sent datagrams to the count.
  void note_sent(uint32_t datagrams) { next_ = static_cast<uint16_t>(next_ + datagrams); }
  // Makes the identification unknown. Called when the kernel refused a datagram, possibly after counting it.
  void lose_count() { is_known_ = false; }

 private:
  explicit FragmentSocket(std::unique_ptr<SendSocket> socket) : socket_(std::move(socket)) {}
  bool learn();

  std::unique_ptr<SendSocket> socket_;
  uint16_t next_ = 0;
  bool is_known_ = false;
  uint32_t attempts_left_ = 3;  // to learn the count
};

// Tells whether packets fit the path MTU that the kernel knows for a destination.
class PathMtu {
 public:
  explicit PathMtu(const roce::Path& path);
  // Whether a datagram with a UDP payload of this size leaves unfragmented. Also true if the MTU is unknown.
  bool takes(uint32_t udp_payload_bytes) const;

 private:
  std::unique_ptr<SendSocket> socket_;  // connected to the destination; sends nothing
  bool ipv6_;
};

}  // namespace verbena::net
