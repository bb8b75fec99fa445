// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/own_fd.h"
#include "base/result.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::net {

// A socket that sends packets of paths with one source address and one network device.
struct SendSocket {
  bool is_for(const roce::Path& path) const {
    return source == path.source && interface_index == path.interface_index;
  }
  // Returns whether packets of the path leave with the right source and device without a control message.
  bool implies(const roce::Path& path) const { return is_for(path) && bound_to_interface; }

  OwnFd fd;
  uint16_t port = 0;  // the socket's UDP source port, which the ICRC covers
  roce::Address source;
  uint32_t interface_index = 0;
  bool bound_to_interface = false;   // also true if the paths name no device
  std::unique_ptr<SendSocket> next;  // another socket for the same destination slot
  // The path of the packets that the kernel accepted last. If the socket stays full because its packets wait
  // for a neighbour's hardware address, `latest` is the path of the waiting packets.
  roce::Path latest;
};

// Opens a socket that is bound to the path's source and device and to a random RoCEv2 source port (0xC000 to
// 0xFFFF), or to another port if none of these is found free. The socket sends packets with "don't fragment".
Result<std::unique_ptr<SendSocket>> open_send_socket(const roce::Path& path, uint32_t send_buffer_bytes);

// Makes a send socket from a copy of a receive socket, so that packets leave from `port`, to which the
// receive socket is bound. The send socket takes paths of any source and device.
Result<std::unique_ptr<SendSocket>> share_receive_socket(int receive_socket, uint16_t port,
                                                         uint32_t send_buffer_bytes);

// The sockets by which a Sender sends: one for each source, device and destination slot, opened at first use.
// (A slot is the part of a QPN that selects a shard of the receiving process: wire/roce/qpn.h.)
//
// The receiving kernel's GRO merges packets of one 4-tuple, and steers the merged packet by the slot of the
// first packet in it. So packets for different slots need different source ports. The sockets are unconnected
// and set "don't fragment". So the kernel writes the IPv4 identification 0, or k into the k-th segment of a
// super-packet, and the sender can compute the ICRC, which covers this field. Binding the sockets to the
// source saves a control message per call, about 0.2 us. One thread at a time.
class SendSockets {
 public:
  explicit SendSockets(uint32_t send_buffer_bytes);

  // Returns a socket for the path's source and the slot. If the maximum number is open, or no more can be
  // opened, returns another socket of the path's address family. Packets that GRO then merges wrongly are
  // lost at the receiver and sent again. Returns null if the family has no socket.
  SendSocket* get(const roce::Path& path, uint32_t slot) {
    for (SendSocket* socket = by_slot_[slot].get(); socket != nullptr; socket = socket->next.get()) {
      if (socket->is_for(path)) return socket;
    }
    return make(path, slot);
  }

  // Replaces the kernel's socket in `socket` by a new one, which has an empty buffer and a different source
  // port. The kernel still sends the packets that the former socket has accepted. Returns false, without an
  // effect, if no socket can be opened.
  bool renew(SendSocket& socket) const;

 private:
  SendSocket* make(const roce::Path& path, uint32_t slot);

  uint32_t send_buffer_bytes_;
  size_t max_;  // sockets per family: an eighth of RLIMIT_NOFILE, which leaves descriptors to the application
  std::array<std::unique_ptr<SendSocket>, roce::Qpn::kSlots> by_slot_;
  std::array<std::vector<SendSocket*>, 2> made_;  // by family: IPv4, IPv6
};

// Learns which IPv4 identifications the kernel gives to the datagrams of a socket, the measured socket. The
// measured socket sends datagrams to a socket of the probe, which reads their IP headers with a BPF filter.
// The probe's socket accepts datagrams from the measured socket only: other users can see its port in
// /proc/net/udp, and could send to it.
class IdentificationProbe {
 public:
  // REQUIRES: `measured` outlives the probe
  explicit IdentificationProbe(const SendSocket& measured);

  bool is_open() const { return port_ != 0; }
  uint16_t port() const { return port_; }

  // Sends a datagram by the measured socket, and returns bits `shift` to `shift` + 7 of the datagram's
  // identification. Waits at most 20 ms. Returns nullopt if the datagram cannot be sent or does not arrive.
  // REQUIRES: is_open()
  std::optional<uint8_t> byte_of_next(uint32_t shift);
  // Sends a datagram by an unconnected socket of the probe. The datagram uses up an identification of the
  // counter that all unconnected sockets share. If the measured socket's next identification skips a number,
  // the measured socket uses this counter, too, and has none of its own. Returns false if the datagram cannot
  // be sent.
  bool take_shared();

 private:
  const int measured_;
  UniqueFd fd_;
  UniqueFd unconnected_;
  uint16_t port_ = 0;  // 0: could not be opened
  uint16_t unconnected_port_ = 0;
  roce::Address address_;
};

// A socket that sends packets that are longer than their path's MTU, in IP fragments.
//
// The ICRC over IPv4 covers the identification and the flag "don't fragment". The kernel chooses the
// identification of a datagram that may be fragmented, and programs cannot set it. But on a connected socket
// the kernel counts: each datagram gets the identification of the previous datagram plus 1
// (ip_select_ident_segs(), Linux 5.17). So an IPv4 FragmentSocket is connected, and names the destination
// with each datagram. Its connected address is one of its own host, so that it gets no ICMP errors. To learn
// the current count, a FragmentSocket sends a few datagrams to a second socket of this process. The classic
// BPF filter of the second socket reads the IP header, and truncates each datagram to a length that encodes
// one byte of the identification.
//
// If the kernel does not count this way, or a firewall drops these datagrams, the identification stays
// unknown. Then packets carry the ICRC of a packet that must not be fragmented: Verbena's receivers accept
// this ICRC, the kernel's rxe does not. The IPv6 header has no identification. One thread at a time.
class FragmentSocket {
 public:
  // Opens a socket for paths with the source address and the network device of `path`.
  static Result<std::unique_ptr<FragmentSocket>> open(const roce::Path& path, uint32_t send_buffer_bytes);

  SendSocket& socket() const { return *socket_; }
  bool is_for(const roce::Path& path) const { return socket_->is_for(path); }
  // Replaces the kernel's socket like SendSockets::renew(). Afterwards the identification is unknown.
  bool renew(uint32_t send_buffer_bytes);

  // Returns the identification that the next datagram will have (IPv4), or nullopt if it is unknown. If it is
  // unknown, first tries to learn it, and waits at most 20 ms for each probe datagram. After three failures
  // it makes no more attempts.
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
  // Returns whether a datagram with a UDP payload of this size leaves unfragmented. Also true if the MTU is
  // unknown.
  bool takes(uint32_t udp_payload_bytes) const;

 private:
  std::unique_ptr<SendSocket> socket_;  // connected to the destination; sends nothing
  bool ipv6_;
};

}  // namespace verbena::net
