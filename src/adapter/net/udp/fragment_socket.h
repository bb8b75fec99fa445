// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/net/udp/send_sockets.h"
#include "base/result.h"

namespace verbena::net {

// A socket for packets that are longer than their path's MTU: they leave in IP fragments.
//
// The ICRC of IPv4 covers the identification and the flag "don't fragment". The kernel chooses the
// identification of a datagram that may be fragmented, and programs cannot set it. But a connected socket
// counts: each datagram gets the identification after that of the previous one (ip_select_ident_segs(), Linux
// 5.17). So this socket is connected, to an address of its own host so that it gets no ICMP errors, and names
// the destination with each datagram. To learn the current count, it sends a few datagrams to a second socket
// of this process. The classic BPF filter of that socket can read IP headers: it truncates each datagram to a
// length that encodes one byte of its identification.
//
// If the kernel does not count this way, or a firewall drops these datagrams, the identification stays
// unknown. Then the ICRC is that of a packet that must not be fragmented: Verbena's receivers accept it, the
// kernel's rxe does not. IPv6 has no such field. One thread at a time.
class FragmentSocket {
 public:
  // Opens a socket for paths of this source and device.
  static Result<std::unique_ptr<FragmentSocket>> open(const roce::Path& path, uint32_t send_buffer_bytes);

  const SendSocket& socket() const { return *socket_; }
  bool is_for(const roce::Path& path) const { return socket_->is_for(path); }

  // The identification of the next datagram (IPv4). Nothing: it is unknown.
  std::optional<uint16_t> next_identification();
  void note_sent(uint32_t datagrams) { next_ = static_cast<uint16_t>(next_ + datagrams); }
  // Forgets the count: a datagram was refused, possibly after the kernel counted it.
  void lose_count() { is_known_ = false; }

 private:
  explicit FragmentSocket(std::unique_ptr<SendSocket> socket) : socket_(std::move(socket)) {}
  bool learn();

  std::unique_ptr<SendSocket> socket_;
  uint16_t next_ = 0;
  bool is_known_ = false;
  uint32_t attempts_left_ = 3;  // to learn the count
};

// The MTU of the path to a destination, as the kernel knows it.
class PathMtu {
 public:
  explicit PathMtu(const roce::Path& path);
  // Whether a UDP payload of this size needs no fragments. True also if the MTU is unknown.
  bool takes(uint32_t udp_payload_bytes) const;

 private:
  std::unique_ptr<SendSocket> socket_;  // connected to the destination; sends nothing
  bool ipv6_;
};

}  // namespace verbena::net
