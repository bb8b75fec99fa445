// SPDX-License-Identifier: Apache-2.0
// A program's socket for management datagrams, and the files of long ones.
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "agent/mad/dispatcher.h"
#include "agent/slots/wire.h"
#include "base/sealed_file.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

constexpr uid_t kProgramsUser = 1000;
constexpr uint32_t kPortsDevice = 1;
constexpr size_t kRestOfMad = 1000;

class OpenPortTest : public ::testing::Test {
 protected:
  void SetUp() override {
    control::Link link;
    link.name = "test";
    link.device_index = link.interface_index = kPortsDevice;
    link.up = true;
    constexpr uint8_t kAddress[] = {10, 1, 2, 3};
    link.gids = {{0, roce::Address::from_ipv4(kAddress)}};
    mads_.links_changed({link});
    Lessee program;
    program.uid = kProgramsUser;
    protocol::DeviceRequest request{};
    request.device_index = kPortsDevice;
    request.flags = protocol::kMadLongMessages;
    auto opened = mads_.open_port(program, request);
    ASSERT_TRUE(opened);
    socket_ = std::move(opened->last_fd);
  }
  // Sends a message of kMadBytes + kRestOfMad with this file.
  void send_long(const UniqueFd& file) {
    std::array<std::byte, protocol::kUserMadBytes + protocol::kMadBytes> message{};
    protocol::UserMad header{};
    header.length = static_cast<uint32_t>(message.size() + kRestOfMad);
    std::memcpy(message.data(), &header, sizeof header);
    const int fd = file.get();
    ASSERT_TRUE(control::send_message(socket_.get(), message, {&fd, 1}));
  }
  static UniqueFd file_of(size_t bytes) {
    return write_memory_file("test", std::vector<std::byte>(bytes)).value_or(UniqueFd());
  }
  // Runs the loop while it has something to do at once.
  void run() {
    do {
      loop_.in_next_round([] {});
      loop_.run_round();
    } while (loop_.has_work_for(kProgramsUser));
  }

  EventLoop loop_;
  ClientSockets sockets_{loop_, {.all = 100, .reserve = 0}, 0};
  AgentHost agent_;
  LinkTable links_;
  Wire wire_{4791};
  SlotTable slots_{wire_, 0};
  CounterPublisher counters_{loop_, slots_, links_, sockets_.closer(), 0};
  CmService cm_{loop_, sockets_.closer(), 4791, agent_};
  MadDispatcher mads_{loop_, sockets_, 0, "host", cm_, counters_, agent_};
  UniqueFd socket_;
};

TEST_F(OpenPortTest, IsClosedIfAFileIsShorterThanItsMessage) {
  send_long(file_of(kRestOfMad - 1));
  while (mads_.open_ports() != 0) loop_.run_round();
}

TEST_F(OpenPortTest, ReadsOnAfterAFile) {
  send_long(file_of(kRestOfMad));
  send_long(file_of(kRestOfMad + 1));
  while (mads_.open_ports() != 0) loop_.run_round();
}

// A read waits for as long as the file's owner likes.
TEST_F(OpenPortTest, HasFilesReadOnTheThreadOfItsUser) {
  std::atomic<bool> is_stuck = true;
  const UniqueFd any = file_of(1);
  ASSERT_TRUE(sockets_.closer().work_with(
      kProgramsUser, any.get(), [&](int) { is_stuck.wait(true); }, [] {}));
  send_long(file_of(kRestOfMad - 1));
  run();
  EXPECT_EQ(mads_.open_ports(), 1u) << "the file is not read yet";
  socket_.reset();
  run();
  EXPECT_EQ(mads_.open_ports(), 1u) << "what a program sends before its end counts";
  is_stuck = false;
  is_stuck.notify_all();
  while (mads_.open_ports() != 0) loop_.run_round();
}

}  // namespace
}  // namespace verbena::agent
