// SPDX-License-Identifier: Apache-2.0
// The throughput of two UdpPorts with RDMA WRITEs: the sender copies the payload and computes the ICRC, the
// receiver checks it and copies the payload to its destination.
#include <atomic>
#include <cstring>
#include <vector>

#include "net/measure.h"

namespace verbena::bench {
namespace {

constexpr uint32_t kHeaderBytes = roce::kBthBytes + roce::kIcrcBytes;
constexpr size_t kRegionBytes = 1 << 20;
constexpr auto kLost = std::chrono::milliseconds(20);

roce::Headers headers_to(uint32_t slot, roce::Operation operation) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
  headers.destination = roce::Qpn::in_slot(slot, 1);
  return headers;
}

// Copies each packet's payload to the place where a WRITE with that PSN would put it.
class Target : public net::PacketHandler {
 public:
  explicit Target(uint32_t payload_bytes)
      : region_(kRegionBytes), payload_bytes_(payload_bytes), places_(kRegionBytes / payload_bytes) {}

  void on_packet(const transport::IncomingPacket& packet) override {
    const roce::Headers& headers = packet.packet.headers;
    if (headers.operation() == roce::Operation::kSendOnly) {
      done = true;
      return;
    }
    const size_t place = headers.psn.value() % places_;
    std::memcpy(&region_[place * payload_bytes_], packet.packet.payload.data(), packet.packet.payload.size());
    ++received;
  }

  uint64_t received = 0;
  bool done = false;

 private:
  std::vector<std::byte> region_;
  uint32_t payload_bytes_;
  size_t places_;
};

// Handles acknowledgements. Their PSN is the number of packets that have arrived.
class Window : public net::PacketHandler {
 public:
  void on_packet(const transport::IncomingPacket& packet) override {
    const int32_t step = packet.packet.headers.psn - roce::Psn(static_cast<uint32_t>(arrived));
    if (step > 0) arrived += static_cast<uint64_t>(step);
  }
  uint64_t arrived = 0;
};

double nanoseconds(Clock::duration d) {
  return std::chrono::duration<double, std::nano>(d).count();
}

}  // namespace

Rate port_blast(const Ends& ends, const Load& load) {
  Rate rate;
  PortPair ports(ends);
  const uint32_t payload_bytes = load.packet_bytes - kHeaderBytes;
  const uint64_t window = load.packets_in_flight();
  Clock::duration receiver_busy{};
  uint64_t received = 0;

  const auto sender = [&] {
    net::Port& port = *ports.sender;
    const std::vector<std::byte> region(kRegionBytes, std::byte{0x5a});
    const size_t places = kRegionBytes / payload_bytes;
    roce::Headers headers = headers_to(ports.receiver_slot, roce::Operation::kWriteMiddle);
    Window acknowledged;
    uint64_t sent = 0, lost = 0;
    Clock::duration busy{};
    const auto start = Clock::now();
    auto progress = start;
    for (;;) {
      const auto now = Clock::now();
      if (now - start >= load.duration) break;
      if (port.receive(acknowledged, 64) != 0) {
        progress = now;
      } else if (now - progress > kLost) {
        lost = sent - acknowledged.arrived;
        progress = now;
      }
      if (sent - acknowledged.arrived - lost >= window) continue;
      do {
        headers.psn = roce::Psn(static_cast<uint32_t>(sent));
        const ConstBytes payload[] = {{&region[sent % places * payload_bytes], payload_bytes}};
        if (port.send({ends.there, headers, payload, payload_bytes}) != transport::SendStatus::kSent) break;
        ++sent;
      } while (sent - acknowledged.arrived - lost < window);
      port.flush();
      busy += Clock::now() - now;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto arrived = static_cast<double>(acknowledged.arrived);
    rate.gigabits_per_second = arrived * load.packet_bytes * 8 / seconds / 1e9;
    rate.packets_per_second = arrived / seconds;
    rate.lost = lost;
    rate.sender_ns = nanoseconds(busy) / static_cast<double>(sent);
    const roce::Headers end = headers_to(ports.receiver_slot, roce::Operation::kSendOnly);
    port.send({ends.there, end, {}, 0});
    port.flush();
  };

  const auto receiver = [&] {
    net::Port& port = *ports.receiver;
    roce::Headers headers = headers_to(ports.sender_slot, roce::Operation::kAcknowledge);
    Target target(payload_bytes);
    while (!target.done) {
      const auto now = Clock::now();
      if (port.receive(target, 64) == 0) continue;
      headers.psn = roce::Psn(static_cast<uint32_t>(target.received));
      port.send({ends.back, headers, {}, 0});
      port.flush();
      receiver_busy += Clock::now() - now;
    }
    received = target.received;
  };
  run_pinned(ends, sender, receiver);
  rate.receiver_ns = nanoseconds(receiver_busy) / static_cast<double>(received);
  return rate;
}

}  // namespace verbena::bench
