// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/forwarder.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/slots/slot_packets.h"
#include "agent/slots/wire.h"
#include "base/lingering_socket.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns the tags of all waiting datagrams; waits for the first.
std::vector<uint32_t> tags_at(int receiver) {
  return test::forwarded_tags(receiver);
}

// Blocks the next sendmmsg(2) of another thread while the object exists, as the receiver of a message can.
class BlockedSend {
 public:
  BlockedSend() { state_ = State::kArmed; }
  ~BlockedSend() {
    state_ = State::kNone;
    state_.notify_all();
  }
  BlockedSend(const BlockedSend&) = delete;
  BlockedSend& operator=(const BlockedSend&) = delete;
  void wait_for_it() { state_.wait(State::kArmed); }

  static void before_send() {
    State armed = State::kArmed;
    if (!state_.compare_exchange_strong(armed, State::kBlocked)) return;
    state_.notify_all();
    state_.wait(State::kBlocked);
  }

 private:
  enum class State : int { kNone, kArmed, kBlocked };
  static inline std::atomic<State> state_ = State::kNone;
};

class ForwarderTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    wire_.open();
    for (uint32_t slot = 1; slot <= 2; ++slot) ASSERT_TRUE(wire_.add());
  }
  UniqueFd forward(uint32_t slot) {
    EXPECT_TRUE(wire_.forward(slot, kUser));
    wire_.unmute(slot);
    return wire_.take_receiver(slot);
  }
  static constexpr uid_t kUser = 1'000'000;  // not the user who runs the tests
  Wire wire_{roce::kUdpPort};
};

TEST_F(ForwarderTest, ForwardsPacketsAndTheirOrigin) {
  const UniqueFd receiver = forward(1);
  ASSERT_TRUE(receiver);
  ASSERT_TRUE(test::send_to_slot(1, 77));
  pollfd readable{receiver.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
  std::array<std::byte, 128> message{};
  ASSERT_EQ(::recv(receiver.get(), message.data(), message.size(), 0),
            static_cast<ssize_t>(sizeof(protocol::ForwardedDatagram) + 16));
  protocol::ForwardedDatagram head;
  std::memcpy(&head, message.data(), sizeof head);
  EXPECT_EQ(head.magic, protocol::ForwardedDatagram::kMagic);
  const uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  EXPECT_EQ(std::memcmp(head.source, loopback, sizeof loopback), 0);
  EXPECT_EQ(std::memcmp(head.destination, loopback, sizeof loopback), 0);
  EXPECT_EQ(head.interface_index, 1u);
  EXPECT_EQ(head.hop_limit, 64);
  EXPECT_NE(head.source_port, 0);
}

TEST_F(ForwarderTest, ForwardsNothingOfTheLastOwnerToTheNext) {
  const UniqueFd first = forward(1);
  ASSERT_TRUE(test::send_to_slot(1, 1));
  EXPECT_THAT(tags_at(first.get()), ElementsAre(1u));
  ASSERT_TRUE(test::send_to_slot(1, 2));  // no process reads it
  wire_.mute(1);
  ASSERT_TRUE(test::send_to_slot(1, 3));
  const UniqueFd second = forward(1);
  ASSERT_TRUE(test::send_to_slot(1, 4));
  EXPECT_THAT(tags_at(second.get()), ElementsAre(4u));
}

TEST_F(ForwarderTest, AReceiverThatDoesNotReadHoldsUpNobodyElse) {
  const UniqueFd idle = forward(1);
  const UniqueFd busy = forward(2);
  constexpr uint32_t kFlood = 50'000;
  for (uint32_t tag = 0; tag < kFlood; ++tag) {
    ASSERT_TRUE(test::send_to_slot(1, tag));
    if (tag % 1000 != 0) continue;
    ASSERT_TRUE(test::send_to_slot(2, tag));
    ASSERT_THAT(tags_at(busy.get()), ElementsAre(tag));
  }
  // Datagrams that did not fit are lost; later ones arrive again.
  uint32_t got = 0;
  for (auto tags = tags_at(idle.get()); !tags.empty(); tags = test::forwarded_tags(idle.get(), 100))
    got += static_cast<uint32_t>(tags.size());
  EXPECT_GT(got, 0u);
  EXPECT_LT(got, kFlood / 2);
  ASSERT_TRUE(test::send_to_slot(1, kFlood));
  EXPECT_THAT(tags_at(idle.get()), ElementsAre(kFlood));
}

// The receiver may be stopped, and the agent that answers for it reads the UDP socket.
TEST_F(ForwarderTest, GivesNoMoreToAReceiverThatHasReadNothingForAMoment) {
  const UniqueFd receiver = forward(1);
  uint32_t tag = 0;
  const auto lies_in_the_socket = [&] {
    int bytes = 0;
    return ::ioctl(wire_.socket(1), SIOCINQ, &bytes) == 0 && bytes > 0;
  };
  const TimePoint end = MonotonicClock::now() + std::chrono::seconds(10);
  while (!lies_in_the_socket() && MonotonicClock::now() < end) {
    ASSERT_TRUE(test::send_to_slot(1, tag++));
    ::poll(nullptr, 0, 20);
  }
  EXPECT_TRUE(lies_in_the_socket());
  EXPECT_LT(tag, 100u) << "long before the pair is full";
  uint32_t got = 0;
  for (auto tags = tags_at(receiver.get()); !tags.empty(); tags = test::forwarded_tags(receiver.get(), 500)) {
    got += static_cast<uint32_t>(tags.size());
  }
  EXPECT_EQ(got, tag) << "nothing is lost";
}

Duration processor_time() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

TEST_F(ForwarderTest, AReceiverThatIsGoneCostsNothing) {
  UniqueFd gone = forward(1);
  const UniqueFd there = forward(2);
  gone.reset();
  ASSERT_TRUE(test::send_to_slot(1, 1));
  ASSERT_TRUE(test::send_to_slot(2, 2));
  EXPECT_THAT(tags_at(there.get()), ElementsAre(2u));
  const Duration before = processor_time();
  pollfd nothing{there.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&nothing, 1, 500), 0);
  EXPECT_LT(processor_time() - before, std::chrono::milliseconds(100)) << "a thread does not sleep";
}

TEST_F(ForwarderTest, TakesNothingFromTheReceiver) {
  const UniqueFd receiver = forward(1);
  const int fd = receiver.get();
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof fd)> control{};
  char byte = 0;
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  EXPECT_EQ(::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EPIPE);
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  EXPECT_EQ(::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(ForwarderTest, GoesOnWhereAFormerOneHasEnded) {
  std::optional<Forwarder> former(std::in_place);
  auto receiver = former->begin(1, kUser, wire_.socket(1));
  ASSERT_TRUE(receiver);
  wire_.unmute(1);
  UniqueFd end(::dup(former->end_of(1)));
  former.reset();
  ASSERT_TRUE(test::send_to_slot(1, 5));
  Forwarder next;
  ASSERT_TRUE(next.go_on(1, kUser, wire_.socket(1), std::move(end)));
  EXPECT_THAT(tags_at(receiver->get()), ElementsAre(5u));
  next.end(1);
  EXPECT_EQ(next.end_of(1), -1);
}

// Clocks of a forwarder whose work takes long between any two readings.
class SlowWork {
 public:
  static constexpr Duration kEach = std::chrono::milliseconds(50);

  Forwarder::Clocks clocks() {
    const auto read = [this] {
      if (is_slow_) time_ += Duration(kEach).count();
      return TimePoint(std::chrono::hours(1)) + Duration(time_);
    };
    return {.now = read, .processor = read};
  }
  void set_slow(bool slow) { is_slow_ = slow; }
  void pass(Duration time) { time_ += time.count(); }

 private:
  std::atomic<bool> is_slow_ = false;
  std::atomic<int64_t> time_ = 0;
};

class SlowReceiverTest : public ForwarderTest {
 protected:
  UniqueFd begin(uint32_t slot, uid_t user) {
    auto receiver = forwarder_.begin(slot, user, wire_.socket(slot));
    EXPECT_TRUE(receiver);
    wire_.unmute(slot);
    return receiver ? std::move(*receiver) : UniqueFd();
  }
  // Forwards a datagram to the slot. Everything that was forwarded before is over then.
  void expect_forwarded(uint32_t slot, const UniqueFd& receiver, uint32_t tag) {
    ASSERT_TRUE(test::send_to_slot(slot, tag));
    EXPECT_THAT(tags_at(receiver.get()), ElementsAre(tag));
  }
  SlowWork work_;
  Forwarder forwarder_{{}, work_.clocks()};
};

// One slow send may be that of a thread that had to wait for a processor.
TEST_F(SlowReceiverTest, GetsNothingDuringAPauseAndOthersDo) {
  const UniqueFd slow = begin(1, kUser);
  const UniqueFd other = begin(2, kUser + 1);
  work_.set_slow(true);
  for (uint32_t tag = 0; tag < 2; ++tag) expect_forwarded(1, slow, tag);
  expect_forwarded(2, other, 50);
  work_.set_slow(false);
  for (uint32_t tag = 4; tag < 14; ++tag) {
    ASSERT_TRUE(test::send_to_slot(1, tag));
    expect_forwarded(2, other, tag);
  }
  EXPECT_THAT(test::forwarded_tags(slow.get(), 0), IsEmpty());
  // The time must not pass within work for the other. The thread may still have been measuring it.
  ASSERT_TRUE(wire_.add());
  const UniqueFd third = begin(3, kUser + 2);
  expect_forwarded(3, third, 1);
  work_.pass(SlowWork::kEach * 100 * SlowUsers::kPause);
  expect_forwarded(2, other, 14);
  std::vector<uint32_t> late;
  while (late.size() < 10) {
    const auto tags = tags_at(slow.get());
    ASSERT_THAT(tags, testing::Not(IsEmpty()));
    late.insert(late.end(), tags.begin(), tags.end());
  }
  EXPECT_THAT(late, ElementsAre(4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u)) << "they wait in the UDP socket";
}

TEST_F(SlowReceiverTest, IsNotWaitedForAtTheEnd) {
  const UniqueFd slow = begin(1, kUser);
  std::future<void> ended;
  BlockedSend send;
  ASSERT_TRUE(test::send_to_slot(1, 1));
  send.wait_for_it();
  ended = std::async(std::launch::async, [this] { forwarder_.end(1); });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  pollfd hung_up{slow.get(), 0, 0};
  EXPECT_EQ(::poll(&hung_up, 1, 0), 1) << "the pair is shut down at once";
}

// The end is closed on a thread of the user, who may hold it up.
TEST_F(ForwarderTest, APairCountsAsItsUsersDescriptorsUntilItIsClosed) {
  ForeignCloser closer({.all = 3, .reserve = 0}, 0);
  Forwarder forwarder(&closer);
  ASSERT_TRUE(forwarder.begin(1, kUser, wire_.socket(1)));
  const auto refused = forwarder.begin(2, kUser, wire_.socket(2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EMFILE);
  forwarder.end(1);
  EXPECT_FALSE(closer.allows(kUser, 2)) << "whether it is closed is not looked at yet";
  EXPECT_TRUE(test::becomes_true([&] {
    closer.take_closed();
    return closer.allows(kUser, 2);
  }));
  EXPECT_TRUE(forwarder.begin(2, kUser, wire_.socket(2)));
}

}  // namespace
}  // namespace verbena::agent

// The C library's, for the whole test program.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  verbena::agent::BlockedSend::before_send();
  return static_cast<int>(::syscall(SYS_sendmmsg, socket, messages, count, flags));
}
