// SPDX-License-Identifier: Apache-2.0
// The records that processes write into their rings, as a capture file.
#include "commands/verbena/recorder.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/memory/guarded.h"
#include "control/protocol/status_page.h"
#include "observe/capture/ring_writer.h"

namespace verbena::commands {
namespace {

using protocol::CaptureNewsReply;
using roce::Operation;
using roce::Service;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint32_t kServerSlot = 3;
constexpr uint32_t kClientSlot = 5;
constexpr roce::Qpn kServerQp = roce::Qpn::in_slot(kServerSlot, 7);
constexpr roce::Qpn kClientQp = roce::Qpn::in_slot(kClientSlot, 9);
constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1000));

roce::Address address(uint8_t last) {
  const uint8_t ipv4[] = {192, 0, 2, last};
  return roce::Address::from_ipv4(ipv4);
}

control::Link link_with(std::string name, const roce::Address& gid) {
  control::Link link;
  link.name = std::move(name);
  link.gids = {{0, gid}};
  return link;
}

// A captured process: the test writes what its library would.
class Process {
 public:
  Process(uint32_t slot, pid_t pid, std::string program)
      : slot_(slot), pid_(pid), program_(std::move(program)) {
    auto made = capture::make_ring_file(roce::kMaxPathMtu);
    EXPECT_TRUE(made);
    file_ = std::move(*made);
    auto mapped = capture::RingMapping::map(file_.get());
    EXPECT_TRUE(mapped);
    ring_.emplace(std::move(*mapped));
    writer_.emplace(ring_->memory());
    page_.reset(::memfd_create("status", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(page_.get(), sizeof(protocol::StatusPage)), 0);
    put_into_page(0, protocol::StatusPage::kMagic);
  }
  control::CaptureNews news() const {
    control::CaptureNews news;
    news.kind = CaptureNewsReply::kBegun;
    news.slot = slot_;
    news.pid = pid_;
    news.program = program_;
    news.ring.reset(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    news.status_page.reset(::fcntl(page_.get(), F_DUPFD_CLOEXEC, 0));
    return news;
  }
  void publish(roce::Qpn qpn, roce::Qpn remote) {
    const size_t at = offsetof(protocol::StatusPage, qps) + qpn.index() * sizeof(protocol::QpStatus);
    put_into_page(at + offsetof(protocol::QpStatus, in_use), 1);
    put_into_page(at + offsetof(protocol::QpStatus, qpn), qpn.value());
    put_into_page(at + offsetof(protocol::QpStatus, remote_qpn), remote.value());
  }
  void send(roce::Qpn to, Duration when, Service service = Service::kRc, roce::Qpn source = {}) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(service, Operation::kSendOnly);
    headers.destination = to;
    headers.source = source;
    writer_->put({.time = kNow + when, .path = path, .headers = headers, .payload = {}, .payload_bytes = 0});
  }
  capture::RingMemory& ring() { return ring_->memory(); }

  roce::Path path{.source = address(1), .destination = address(2)};

 private:
  void put_into_page(size_t at, uint64_t value) {
    EXPECT_EQ(::pwrite(page_.get(), &value, sizeof value, static_cast<off_t>(at)),
              static_cast<ssize_t>(sizeof value));
  }

  const uint32_t slot_;
  const pid_t pid_;
  const std::string program_;
  UniqueFd file_;
  std::optional<capture::RingMapping> ring_;
  std::optional<capture::RingWriter> writer_;
  UniqueFd page_;
};

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() { memory::install_fault_guard(); }

  Recorder& start(CaptureChoice choice = {}) {
    recorder = std::make_unique<Recorder>(std::move(choice), links);
    recorder->begin(server.news());
    recorder->begin(client.news());
    recorder->writer().clear();
    return *recorder;
  }
  // Returns the comments of the packets written since the last call.
  std::vector<std::string> comments() {
    std::vector<std::string> found;
    ConstBytes left = recorder->writer().pending();
    while (!left.empty()) {
      const uint32_t type = word(left, 0);
      const uint32_t length = word(left, 4);
      if (type == 6) {
        const uint32_t captured = word(left, 20);
        const ConstBytes option = left.subspan(28 + (captured + 3) / 4 * 4);
        found.emplace_back(reinterpret_cast<const char*>(option.data() + 4), word(option, 0) >> 16);
      }
      left = left.subspan(length);
    }
    recorder->writer().clear();
    return found;
  }
  static uint32_t word(ConstBytes bytes, size_t at) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }

  static constexpr Duration kTick = std::chrono::microseconds(1);
  const std::string from_client = "client (pid 22), QP 0x014009 -> server (pid 11), QP 0x00c007";
  const std::string from_server = "server (pid 11), QP 0x00c007 -> client (pid 22), QP 0x014009";

  std::vector<control::Link> known;
  CaptureLinks links{[this] { return known; }};
  Process server{kServerSlot, 11, "server"};
  Process client{kClientSlot, 22, "client"};
  std::unique_ptr<Recorder> recorder;
};

TEST_F(RecorderTest, PacketsOfTwoProcessesComeInTheOrderOfTime) {
  server.publish(kServerQp, kClientQp);
  client.publish(kClientQp, kServerQp);
  start();
  client.send(kServerQp, -4 * kTick);
  client.send(kServerQp, -2 * kTick);
  server.send(kClientQp, -3 * kTick);
  server.send(kClientQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 4u);
  EXPECT_THAT(comments(), ElementsAre(from_client, from_server, from_client, from_server));
}

TEST_F(RecorderTest, WhatWasSentAfterTheLimitWaits) {
  client.publish(kClientQp, kServerQp);
  start();
  client.send(kServerQp, -2 * kTick);
  client.send(kServerQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow - 2 * kTick, kNow), 1u);
  EXPECT_EQ(recorder->record(kNow, kNow + kTick), 1u);
}

// A process may claim any time. That delays no other process's packets, nor its own.
TEST_F(RecorderTest, ATimeThatIsYetToComeIsNow) {
  start();
  client.send(kServerQp, std::chrono::hours(1));
  server.send(kClientQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 2u);
}

TEST_F(RecorderTest, AQueuePairThatIsConnectedWhileOthersSendIsFound) {
  client.publish(kClientQp, kServerQp);
  start();
  client.send(kServerQp, -2 * kTick);
  recorder->record(kNow, kNow);
  comments();
  const roce::Qpn late = roce::Qpn::in_slot(kServerSlot, 8);
  client.publish(roce::Qpn::in_slot(kClientSlot, 10), late);
  client.send(late, -1 * kTick);
  recorder->record(kNow, kNow + std::chrono::milliseconds(50));
  EXPECT_THAT(comments(), ElementsAre("client (pid 22), QP 0x01400a -> server (pid 11), QP 0x00c008"));
}

TEST_F(RecorderTest, WhereNobodySaysWhichQueuePairSendsItIsUnknown) {
  start();
  client.send(kServerQp, -1 * kTick);
  recorder->record(kNow, kNow);
  EXPECT_THAT(comments(), ElementsAre("client (pid 22), QP unknown -> server (pid 11), QP 0x00c007"));
}

TEST_F(RecorderTest, ADatagramSaysItself) {
  start();
  client.send(kServerQp, -1 * kTick, Service::kUd, kClientQp);
  recorder->record(kNow, kNow);
  EXPECT_THAT(comments(), ElementsAre(from_client));
}

TEST_F(RecorderTest, OneProcessIsChosenByItsNumberInBothDirections) {
  Process other(9, 33, "other");
  start({.pid = 22});
  recorder->begin(other.news());
  client.send(kServerQp, -3 * kTick);
  server.send(kClientQp, -2 * kTick);
  other.send(kServerQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 3u);
  EXPECT_EQ(recorder->written(), 2u);
}

TEST_F(RecorderTest, ALinkIsChosenByItsAddresses) {
  known = {link_with("rxe_a", address(1)), link_with("rxe_b", address(9))};
  start({.link = "rxe_b"});
  client.send(kServerQp, -2 * kTick);
  client.path.source = address(9);
  client.send(kServerQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 2u);
  EXPECT_EQ(recorder->written(), 1u);
}

TEST_F(RecorderTest, ItEndsWithTheLastPacketThatIsWanted) {
  start({.count = 2});
  for (int i = 3; i > 0; --i) client.send(kServerQp, -i * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 2u);
  EXPECT_TRUE(recorder->is_complete());
  EXPECT_EQ(recorder->record(kNow, kNow), 0u);
}

TEST_F(RecorderTest, WhatAProcessHadWrittenBeforeItEndedIsNotLost) {
  start();
  client.send(kServerQp, -1 * kTick);
  client.ring().left_out = 5;
  recorder->end(kClientSlot);
  EXPECT_EQ(recorder->record(kNow, kNow), 1u);
  EXPECT_EQ(recorder->left_out(), 5u) << "though the ring is gone";
}

TEST_F(RecorderTest, AProcessThatWritesNonsenseSpoilsItsOwnAlone) {
  start();
  client.ring().written = ~uint64_t{0};
  server.send(kClientQp, -2 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 1u);
  EXPECT_THAT(recorder->take_complaints(), SizeIs(1));
  server.send(kClientQp, -1 * kTick);
  EXPECT_EQ(recorder->record(kNow, kNow), 1u);
  EXPECT_THAT(recorder->take_complaints(), IsEmpty());
}

TEST_F(RecorderTest, OfAFrameNoMoreIsWrittenThanIsWanted) {
  EXPECT_EQ(CaptureChoice{.snap_bytes = 64}.payload_snap_bytes(), 10u);
  EXPECT_EQ(CaptureChoice{}.payload_snap_bytes(), 4096u);
}

}  // namespace
}  // namespace verbena::commands
