// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "adapter/net/udp/udp_port.h"
#include "agent/event_loop.h"
#include "base/result.h"
#include "management/cm/events.h"
#include "management/cm/mad.h"

namespace verbena::agent {

// What QP1 has received and sent, beside what the connection manager counts of its own.
struct GsiCounters {
  uint64_t received = 0;  // whole datagrams to QP1
  uint64_t sent = 0;
  uint64_t not_ud = 0;  // another operation than UD SEND
  uint64_t bad_qkey = 0;
  uint64_t bad_size = 0;       // not 256 bytes
  uint64_t unknown_class = 0;  // of a management class that nobody serves here
  uint64_t answered = 0;       // of these, those whose senders were told so
  uint64_t forged = 0;         // said to be this host's, which has not sent it
};

// QP1, the General Services Interface (IBTA volume 1, 13.5): management datagrams in and out of slot 0's
// socket. One for all devices: a RoCEv2 packet names its device by its IP address. Datagrams leave from UDP
// port 4791 itself, as only the agent can send from there: other agents know by it that no program of this
// host has sent them. Runs on the agent's thread.
class GsiPort final : private net::PacketHandler {
 public:
  using OnMad = std::function<void(ConstBytes mad, const cm::Arrival& arrival)>;
  // False: nobody serves it.
  using OnOther = std::function<bool(ConstBytes mad, const cm::Arrival& arrival)>;
  using OnHeard = std::function<void(const cm::Arrival& arrival)>;

  // `on_mad` gets the datagrams of communication management.
  GsiPort(EventLoop& loop, OnMad on_mad);
  ~GsiPort() override;
  GsiPort(const GsiPort&) = delete;
  GsiPort& operator=(const GsiPort&) = delete;

  // Receives from a copy of slot 0's socket from now on.
  Result<void> open(int slot_socket, uint16_t port);
  bool is_open() const { return port_ != nullptr; }
  // Neither sends nor receives any more.
  void close();

  // Stages a datagram to QP1 of path.destination; it leaves at flush(). One that finds no room is lost.
  void send(const cm::Mad& mad, const roce::Path& path) { send_to(roce::Qpn(cm::kGsiQpn), mad, path); }
  // The same to all who listen to a multicast group.
  void send_to_group(const cm::Mad& mad, const roce::Path& path) { send_to(roce::kMulticastQpn, mad, path); }
  // Stages a packet without a payload that is not QP1's: an answer for another QP of the port.
  void send_headers(const roce::Headers& headers, const roce::Path& path);
  void flush();
  // Who gets the datagrams of all other classes, and who hears of those of communication management.
  void give_others_to(OnOther on_other, OnHeard on_heard) {
    on_other_ = std::move(on_other);
    on_heard_ = std::move(on_heard);
  }

  const GsiCounters& counters() const { return counters_; }
  void count_forged() { ++counters_.forged; }
  // REQUIRES: is_open()
  net::PortCounters& port_counters() { return port_->counters(); }

 private:
  void send_to(roce::Qpn queue_pair, const cm::Mad& mad, const roce::Path& path);
  void on_packet(const transport::IncomingPacket& packet) override;
  void answer_unknown(ConstBytes mad, const cm::Arrival& arrival);

  EventLoop& loop_;
  OnMad on_mad_;
  OnOther on_other_;
  OnHeard on_heard_;
  std::unique_ptr<net::UdpPort> port_;
  uint16_t udp_port_ = 0;
  int watched_ = -1;
  bool retrying_ = false;
  uint32_t psn_ = 0;
  GsiCounters counters_;
};

}  // namespace verbena::agent
