// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/net/udp/send_sockets.h"
#include "base/result.h"

namespace verbena::net {

// A socket for packets that are longer than their path takes: they leave in IP fragments.
//
// The ICRC of IPv4 covers the identification and the flag "don't fragment". The kernel chooses the
// identification of a datagram that may be cut, and no program can say which. But a connected socket counts:
// each datagram has the one after that of the datagram before (ip_select_ident_segs(), Linux 5.17). So this
// socket is connected, to an address of its own host so that no ICMP error reaches it, and names the
// destination with each datagram. To learn where it counts from, it sends a few datagrams to a second socket
// of ours. A classic BPF filter may read IP headers, and cuts each to a length that tells a byte of its
// identification.
//
// Where the kernel does not count so, or a firewall drops those datagrams, the identification stays unknown.
// Then the ICRC is that of a packet that nobody may cut: receivers of ours take it, the kernel's rxe does
// not. IPv6 has no such field. One thread at a time.
class FragmentSocket {
 public:
  // For paths of this source and device.
  static Result<std::unique_ptr<FragmentSocket>> open(const roce::Path& path, uint32_t send_buffer_bytes);

  const SendSocket& socket() const { return *socket_; }
  bool is_for(const roce::Path& path) const { return socket_->is_for(path); }

  // IPv4: what the next datagram gets. Nothing: unknown.
  std::optional<uint16_t> next_identification();
  void note_sent(uint32_t datagrams) { next_ = static_cast<uint16_t>(next_ + datagrams); }
  // A datagram was refused, perhaps after it was counted.
  void lose_count() { is_known_ = false; }

 private:
  explicit FragmentSocket(std::unique_ptr<SendSocket> socket) : socket_(std::move(socket)) {}
  bool learn();

  std::unique_ptr<SendSocket> socket_;
  uint16_t next_ = 0;
  bool is_known_ = false;
  uint32_t attempts_left_ = 3;  // to learn it
};

// How long a packet to a destination may be, as the kernel knows it.
class PathMtu {
 public:
  explicit PathMtu(const roce::Path& path);
  // Whether a UDP payload of so many bytes goes whole. True also where nothing is known.
  bool takes(uint32_t udp_payload_bytes) const;

 private:
  std::unique_ptr<SendSocket> socket_;  // connected to the destination; nothing is sent by it
  bool ipv6_;
};

}  // namespace verbena::net
