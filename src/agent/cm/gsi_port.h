// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "adapter/net/udp/route_check.h"
#include "adapter/net/udp/sender.h"
#include "adapter/net/udp/udp_port.h"
#include "agent/event_loop.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"

namespace verbena::agent {

// Counters of datagrams to and from QP1. The connection manager has counters of its own messages.
struct GsiCounters {
  uint64_t bad_qkey = 0;
  uint64_t unknown_class = 0;  // of a management class without a handler
};

// Sends packets without payload to the network. An interface, so that tests see the packets.
class HeaderSender {
 public:
  virtual ~HeaderSender() = default;
  // Stages a packet, which flush() sends.
  virtual void send_headers(const roce::Headers& headers, const roce::Path& path) = 0;
  virtual void flush() = 0;
};

// QP1, the General Services Interface (IBTA volume 1, 13.5): sends and receives management datagrams through
// slot 0's socket. There is one for all devices: the IP address of a RoCEv2 packet names its device.
// Connection management, and datagrams to groups, are sent from UDP port 4791 itself. Untrusted programs
// cannot send from that port, so other agents know that such a datagram comes from an agent. All other
// packets are sent by separate sockets and in separate batches. Users and other hosts choose the destinations
// of these packets, and could otherwise fill the buffers that connection management needs. For the agent's
// thread.
class GsiPort final : public HeaderSender, private net::PacketHandler {
 public:
  using OnMad = std::function<void(ConstBytes mad, const cm::Arrival& arrival)>;
  // Handles a datagram. Returns false if the datagram has no receiver.
  using OnOther = std::function<bool(ConstBytes mad, const cm::Arrival& arrival)>;
  using OnHeard = std::function<void(const cm::Arrival& arrival)>;

  // `on_mad`: called with each datagram of communication management.
  GsiPort(EventLoop& loop, OnMad on_mad);
  ~GsiPort() override;

  // Opens the UDP port `port` with a copy of slot 0's socket, and starts to receive.
  Result<void> open(int slot_socket, uint16_t port);
  bool is_open() const { return port_ != nullptr; }
  // Stops sending and receiving.
  void close();

  // Stages a datagram to QP1 of path.destination; flush() sends it. Flushes first if no more datagrams can be
  // staged. The datagram is lost if there is still no room afterwards, or if the port is closed. It is also
  // lost if half of the socket's buffer is in use and the path's next hop does not answer ARP, or cannot be
  // asked about.
  void send(const cm::Mad& mad, const roce::Path& path) { send_to(roce::Qpn(cm::kGsiQpn), mad, path); }
  // Like send(), to all members of a multicast group.
  void send_to_group(const cm::Mad& mad, const roce::Path& path) { send_to(roce::kMulticastQpn, mad, path); }
  // Used to answer for QPs whose process is stopped (StoppedProcesses).
  void send_headers(const roce::Headers& headers, const roce::Path& path) override;
  // Sends the staged packets. While the socket is full, tries again every millisecond.
  void flush() override;
  // Sets two handlers. `on_heard` is called for each datagram that `on_mad` gets, just before `on_mad`, with
  // its sender. `on_other` gets all other datagrams: those of another class or method, or of an unknown base
  // version.
  void give_others_to(OnOther on_other, OnHeard on_heard) {
    on_other_ = std::move(on_other);
    on_heard_ = std::move(on_heard);
  }

  const GsiCounters& counters() const { return counters_; }

 private:
  void send_to(roce::Qpn queue_pair, const cm::Mad& mad, const roce::Path& path);
  template <class Half>
  void send_by(Half& half, const transport::OutgoingPacket& packet);
  bool is_half_full() const;
  bool is_silent(const roce::Path& path);
  void on_packet(const transport::IncomingPacket& packet) override;
  void answer_unknown(ConstBytes mad, const cm::Arrival& arrival);

  EventLoop& loop_;
  OnMad on_mad_;
  OnOther on_other_;
  OnHeard on_heard_;
  std::unique_ptr<net::UdpPort> port_;
  std::unique_ptr<net::Sender> others_;  // for packets that are neither connection management nor to a group
  net::NeighbourSearches searches_;
  uint16_t udp_port_ = 0;
  int watched_ = -1;
  bool retrying_ = false;
  uint32_t psn_ = 0;
  GsiCounters counters_;
};

}  // namespace verbena::agent
