// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "adapter/net/port.h"
#include "adapter/net/sim/link_model.h"
#include "adapter/net/sim/pending_frames.h"
#include "adapter/net/udp/send_run.h"
#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::net {

class SimulatedNetwork;

// A Port on a simulated network, in place of a UdpPort and with the traits of a UdpPort. Packets leave at
// once. receive() returns the packets that have arrived by the network's clock.
class SimulatedPort : public Port {
 public:
  SimulatedPort(SimulatedNetwork& network, const roce::Address& address)
      : network_(network), address_(address) {}

  const roce::Address& address() const { return address_; }
  // While `on`, all packets that this port sends, and all that others send to it, are lost. Packets already
  // on their way to the port still arrive.
  void isolate(bool on) { isolated_ = on; }
  // Sends the port's packets over a link with these settings from now on. The network's Conditions no longer
  // apply to packets of this port, except for `busy`.
  void set_link(const LinkSettings& settings, uint64_t seed);
  // Sends this port's packets over the link of another port, as if both ports were behind one switch with one
  // link to their peers. REQUIRES: the other port has a link
  void share_link(const SimulatedPort& other) { link_ = other.link_; }
  // REQUIRES: the port has a link
  LinkModel& link() { return *link_; }
  const LinkCounters& link_counters() const { return link_->counters(); }

  transport::SendStatus send(const transport::OutgoingPacket& packet) override;
  bool flush() override;
  uint32_t receive(PacketHandler& handler, uint32_t budget) override;
  int receive_fd() const override { return -1; }
  int send_fd() const override { return -1; }
  const transport::Traits& traits() const override { return kUdpTraits; }
  PortCounters& counters() override { return counters_; }

 private:
  friend class SimulatedNetwork;

  bool fill(Frame& frame, const transport::OutgoingPacket& packet);
  void set_path(const roce::Path& path);
  void take(PacketHandler& handler, const Frame& frame);

  SimulatedNetwork& network_;
  const roce::Address address_;
  PortCounters counters_;
  PendingFrames pending_;
  bool isolated_ = false;
  std::shared_ptr<LinkModel> link_;
  TimePoint leaves_at_{};  // when all waiting packets will have left
  uint16_t segment_ = 0;   // index of the next packet in a super-packet, which is its IPv4 identification
  roce::Path path_;        // of the last packet
  roce::IcrcFlow flow_;    // of path_
};

}  // namespace verbena::net
