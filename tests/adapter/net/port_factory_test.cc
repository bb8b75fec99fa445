// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "adapter/net/port.h"
#include "adapter/net/udp/send_run.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/udp_port.h"

namespace verbena::net {
namespace {

uint16_t port_of_socket(int fd) {
  SocketAddress address{};
  socklen_t length = sizeof address;
  EXPECT_EQ(::getsockname(fd, &address.generic, &length), 0);
  return port_of(address);
}

TEST(PortFactory, MakesAPortOfTheAgentsSocket) {
  auto socket = open_receive_socket(0);
  ASSERT_TRUE(socket);
  const uint16_t bound = port_of_socket(socket->get());
  PortCounters counters;
  auto ports = open_ports({.slot = 3, .udp_socket = std::move(*socket)}, counters);
  ASSERT_TRUE(ports);
  ASSERT_EQ(ports->size(), 1u);
  Port& port = *ports->front();
  EXPECT_EQ(port_of_socket(port.receive_fd()), bound);
  EXPECT_EQ(&port.counters(), &counters);
  EXPECT_EQ(port.traits().burst_packets, kUdpTraits.burst_packets);
  EXPECT_EQ(port.traits().progress, transport::Traits::Progress::kDescriptor);
  EXPECT_TRUE(port.leads_to({}));
}

TEST(PortFactory, MakesNoneWhereThereIsNoWire) {
  PortCounters counters;
  const auto ports = open_ports({.slot = 3, .udp_socket = {}}, counters);
  ASSERT_TRUE(ports);
  EXPECT_TRUE(ports->empty());
}

TEST(PortFactory, TellsWhyASocketIsNotUsable) {
  PortCounters counters;
  const auto ports =
      open_ports({.slot = 3, .udp_socket = UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))}, counters);
  ASSERT_FALSE(ports);
  EXPECT_EQ(ports.error().code, ENOTSOCK);
}

}  // namespace
}  // namespace verbena::net
