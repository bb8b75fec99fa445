// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <unistd.h>

#include "adapter/net/udp/udp_port.h"
#include "agent/network_namespace.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::test {

// Simulates another host: a network namespace at the other end of a veth pair, without an agent. The test
// sends and receives on its QP1. The thread is in that namespace while this object exists. REQUIRES:
// constructed in the namespace of `agent`, which gets a network device v0 with 10.9.0.1.
class CmPeer : private net::PacketHandler {
 public:
  explicit CmPeer(pid_t agent) {
    const std::string there = "nsenter -t " + std::to_string(agent) + " -n ";
    EXPECT_TRUE(
        shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
              "ip link set v0 up"));
    namespace_.emplace();
    EXPECT_TRUE(shell(there + "ip link set v1 netns " + std::to_string(::getpid())));
    EXPECT_TRUE(shell("ip addr add 10.9.0.2/24 dev v1 && ip link set v1 up"));
    auto socket = net::open_receive_socket(roce::kUdpPort);
    EXPECT_TRUE(socket);
    net::UdpPortOptions options;
    options.sends_from_port = true;
    auto agents = net::UdpPort::create(UniqueFd(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 3)), options);
    auto port = net::UdpPort::create(std::move(*socket), {});
    EXPECT_TRUE(port && agents);
    port_ = std::move(*port);
    agents_port_ = std::move(*agents);
    path_.source = address(2);
    path_.destination = address(1);
  }

  static roce::Address address(uint8_t last) {
    const uint8_t bytes[] = {10, 9, 0, last};
    return roce::Address::from_ipv4(bytes);
  }

  template <class Message>
  void say(const Message& message, uint64_t transaction) {
    send(cm::encode(message, transaction));
  }
  // Sends from UDP port 4791, as Verbena agents do. Adapters and rxe send from other ports.
  template <class Message>
  void say_as_agent(const Message& message, uint64_t transaction) {
    send_by(*agents_port_, cm::encode(message, transaction), cm::kGsiQkey);
  }
  void send(const cm::Mad& mad, uint32_t qkey = cm::kGsiQkey) { send_by(*port_, mad, qkey); }

  // Returns the next datagram to the peer's QP1 that arrives within the timeout.
  std::optional<cm::Mad> hear(int timeout_ms = 5000) {
    const TimePoint deadline = MonotonicClock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
      port_->receive(*this, 16);
      if (!heard_.empty()) break;
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - MonotonicClock::now()).count();
      if (left <= 0) return std::nullopt;
      pollfd entry{port_->receive_fd(), POLLIN, 0};
      ::poll(&entry, 1, static_cast<int>(left));
    }
    const cm::Mad mad = heard_.front();
    heard_.pop_front();
    return mad;
  }
  // Returns the next message, which must be of this type.
  template <class Message>
  Message expect(int timeout_ms = 5000) {
    const auto mad = hear(timeout_ms);
    if (!mad) {
      ADD_FAILURE() << "no message";
      return {};
    }
    const auto header = cm::decode_header(mad->bytes);
    EXPECT_TRUE(header && header->type == Message::kType) << "another message";
    if (!header || header->type != Message::kType) return {};
    transaction_ = header->transaction;
    const auto message = cm::decode<Message>(mad->bytes);
    EXPECT_TRUE(message);
    return message ? *message : Message{};
  }
  uint64_t transaction() const { return transaction_; }
  const roce::Path& last_path() const { return last_path_; }
  uint16_t last_source_port() const { return last_source_port_; }

 private:
  void send_by(net::Port& port, const cm::Mad& mad, uint32_t qkey) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kUd, roce::Operation::kSendOnly);
    headers.destination = headers.source = roce::Qpn(cm::kGsiQpn);
    headers.qkey = qkey;
    const ConstBytes payload(mad.bytes);
    EXPECT_EQ(port.send({path_, headers, {&payload, 1}, cm::kMadBytes}), transport::SendStatus::kSent);
    EXPECT_TRUE(port.flush());
  }

  void on_packet(const transport::IncomingPacket& packet) override {
    EXPECT_EQ(packet.packet.headers.destination, roce::Qpn(cm::kGsiQpn));
    EXPECT_EQ(packet.packet.headers.source, roce::Qpn(cm::kGsiQpn));
    EXPECT_EQ(packet.packet.headers.qkey, cm::kGsiQkey);
    EXPECT_EQ(packet.packet.payload.size(), cm::kMadBytes);
    if (packet.packet.payload.size() != cm::kMadBytes) return;
    cm::Mad& mad = heard_.emplace_back();
    std::copy(packet.packet.payload.begin(), packet.packet.payload.end(), mad.bytes.begin());
    last_path_ = packet.path;
    last_source_port_ = packet.source_port;
  }

  std::optional<NetworkNamespace> namespace_;
  std::unique_ptr<net::UdpPort> port_;
  std::unique_ptr<net::UdpPort> agents_port_;
  roce::Path path_;
  roce::Path last_path_;
  uint16_t last_source_port_ = 0;
  std::deque<cm::Mad> heard_;
  uint64_t transaction_ = 0;
};

// Returns a REQ from the peer to a TCP port of the agent, without communication ID and QPN.
inline cm::Req request_to(uint16_t port) {
  cm::Req req;
  req.service_id = cm::service_id(cm::PortSpace::kTcp, port);
  req.max_cm_retries = 15;
  req.path_mtu = IBV_MTU_1024;
  req.primary.local_lid = req.primary.remote_lid = cm::kPermissiveLid;
  req.primary.local_gid = CmPeer::address(2);
  req.primary.remote_gid = CmPeer::address(1);
  req.primary.hop_limit = 64;
  req.primary.local_ack_timeout = 17;
  cm::IpHeader header;
  header.source_port = 4000;
  header.source = CmPeer::address(2);
  header.destination = CmPeer::address(1);
  const auto head = cm::encode_ip_header(header);
  std::memcpy(req.private_data.data(), head.data(), head.size());
  return req;
}

}  // namespace verbena::test
