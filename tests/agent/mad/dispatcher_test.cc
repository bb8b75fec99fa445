// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/dispatcher.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/links/link_table.h"
#include "agent/slots/wire.h"
#include "base/bytes.h"

namespace verbena::agent {
namespace {

constexpr uid_t kUser = 1'000'000;
constexpr uint32_t kDevice = 3;
constexpr uint8_t kClass = 0x32;
constexpr uint16_t kNobody = 77;  // a LID that is not assigned

class MadDispatcherTest : public ::testing::Test {
 protected:
  MadDispatcherTest() {
    control::Link link;
    link.name = "test";
    link.device_index = kDevice;
    link.up = true;
    mads_.links_changed({link});
  }
  // Opens a port and registers an agent on it.
  UniqueFd open_port() {
    Lessee lessee;
    lessee.uid = kUser;
    protocol::DeviceRequest port{};
    port.device_index = kDevice;
    auto opened = mads_.open_port(lessee, port);
    EXPECT_TRUE(opened);
    struct stat status {};
    EXPECT_EQ(::fstat(opened->last_fd.get(), &status), 0);
    protocol::MadRegisterRequest agent{};
    agent.port = status.st_ino;
    agent.management_class = kClass;
    agent.class_version = 1;
    agent.queue_pair = 1;
    agent.oui = 0x1405;
    EXPECT_TRUE(mads_.add_agent(lessee, agent));
    return std::move(opened->last_fd);
  }
  // Sends a request that nobody answers.
  static void ask(const UniqueFd& port, uint64_t transaction, uint32_t retries) {
    struct {
      protocol::UserMad header{};
      mad::Mad mad;
    } datagram;
    datagram.header.timeout_ms = 1;
    datagram.header.retries = retries;
    datagram.header.lid_be = byteswap(kNobody);
    datagram.mad.set_u8(0, roce::kMadBaseVersion);
    datagram.mad.set_u8(mad::kClassAt, kClass);
    datagram.mad.set_u8(mad::kMethodAt, mad::kMethodGet);
    datagram.mad.set(mad::kTransactionAt, transaction);
    ASSERT_EQ(::send(port.get(), &datagram, sizeof datagram, MSG_DONTWAIT), ssize_t{sizeof datagram});
  }
  // Returns the number of requests that have come back.
  static size_t receive(const UniqueFd& port) {
    size_t count = 0;
    protocol::UserMad header;
    while (::recv(port.get(), &header, sizeof header, MSG_DONTWAIT) > 0) {
      EXPECT_EQ(header.status, static_cast<uint32_t>(ETIMEDOUT));
      ++count;
    }
    return count;
  }

  EventLoop loop_{Duration::zero()};
  AgentHost agent_;
  ClientSockets sockets_{loop_, {.all = 64, .reserve = 8}, ::geteuid()};
  Wire wire_{4791};
  SlotTable slots_{wire_, ::geteuid()};
  LinkTable links_;
  CounterPublisher counters_{loop_, slots_, links_, sockets_.closer(), ::geteuid()};
  CmService cm_{loop_, sockets_.closer(), 4791, agent_};
  MadDispatcher mads_{loop_, sockets_, ::geteuid(), "host", cm_, counters_, agent_};
};

// A user's programs may have 152,832 requests that are due at one moment.
TEST_F(MadDispatcherTest, RequestsAreRepeatedAndGivenUpOneAtATimeInTurnsOfTheirUser) {
  constexpr size_t kMany = 20;
  const std::array ports = {open_port(), open_port()};
  for (size_t i = 0; i < kMany; ++i) ask(ports[i % 2], i, 1);
  size_t returned = 0;
  while (returned < kMany) {
    const bool has_turn = loop_.has_work_for(kUser);
    loop_.run_round();
    const size_t came = receive(ports[0]) + receive(ports[1]);
    EXPECT_LE(came, has_turn ? 1u : 0u);
    returned += came;
  }
}

}  // namespace
}  // namespace verbena::agent
