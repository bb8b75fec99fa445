// SPDX-License-Identifier: Apache-2.0
// A program closes descriptors that are not its own, as daemons do that close all descriptors, and goes on.
// Its new descriptors are never touched. Its RDMA devices are gone, as if unplugged, and it can open them
// again.
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/events.h"
#include "adapter/objects/support/helper.h"

namespace verbena::adapter::testing {
namespace {

// The longest time in which the loss must be noticed.
constexpr auto kSoon = std::chrono::seconds(2);
constexpr int kHighest = 1200;

// A peer that keeps sending.
const HelperBody kSender("lost_descriptors_sender", [](Line& line) {
  Endpoint endpoint({.timeout = 8, .retries = 3});
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
  const ibv_sge piece = endpoint.piece(0, 4096);
  bool told = false;
  for (;;) {
    if (endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint.peer), {&piece, 1}) != 0) break;
    if (endpoint.completion().status != IBV_WC_SUCCESS) break;
    if (!std::exchange(told, true)) line.tell(true);
  }
  // Reports, if the test still listens.
  const ibv_qp_state state = endpoint.state();
  (void)::send(line.fd(), &state, sizeof state, MSG_NOSIGNAL);
});

// TCP connections of the program, on every descriptor number up to our highest.
class ProgramsOwn {
 public:
  ProgramsOwn() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    while (streams_.empty() || streams_.back().get() < kHighest) {
      UniqueFd near(::socket(AF_INET, SOCK_STREAM, 0));
      EXPECT_EQ(::connect(near.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
      UniqueFd far(::accept(listener.get(), nullptr, nullptr));
      // Data that our code could consume by mistake.
      EXPECT_EQ(::send(near.get(), "theirs", 6, 0), 6);
      EXPECT_EQ(::send(far.get(), "theirs", 6, 0), 6);
      streams_.push_back(std::move(near));
      streams_.push_back(std::move(far));
      if (!streams_.back()) break;
    }
  }

  // Checks that all connections are open and have their data.
  void check() {
    for (const UniqueFd& stream : streams_) {
      std::array<char, 64> bytes{};
      // On a busy machine the kernel may deliver data late and out of order.
      pollfd arrival{stream.get(), POLLIN, 0};
      (void)::poll(&arrival, 1, static_cast<int>(std::chrono::milliseconds(kSoon).count()));
      const ssize_t got = ::recv(stream.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      ASSERT_EQ(got, 6) << "descriptor " << stream.get() << ": "
                        << (got < 0 ? std::strerror(errno) : "bytes of ours");
      ASSERT_STREQ(bytes.data(), "theirs");
    }
  }
  size_t count() const { return streams_.size(); }

 private:
  std::vector<UniqueFd> streams_;
};

// Calls a verb until the condition holds. False if it does not within kSoon.
template <class Condition>
bool soon(Condition condition) {
  const TimePoint end = MonotonicClock::now() + kSoon;
  while (!condition()) {
    if (MonotonicClock::now() >= end) return false;
  }
  return true;
}

void close_all() {
  ASSERT_EQ(::syscall(SYS_close_range, 3u, ~0u, 0u), 0) << std::strerror(errno);
}

void raise_limit() {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void lose_everything() {
  raise_limit();
  Helper helper = Helper::start("lost_descriptors_sender");
  auto own = std::make_unique<Endpoint>(Options{.with_channel = true, .timeout = 8, .retries = 3});
  const auto theirs = helper.line().hear<Address>();
  helper.line().tell(own->address());
  own->connect(theirs);
  ASSERT_TRUE(helper.line().hear<bool>()) << "packets flow";
  ASSERT_EQ(own->post_receive(7, own->piece(0, 64)), 0);

  close_all();
  ProgramsOwn program;
  ASSERT_GT(program.count(), 1000u);

  // The QP fails, and its requests are flushed.
  ibv_wc wc{};
  EXPECT_TRUE(soon([&] { return ibv_poll_cq(own->cq.get(), 1, &wc) != 0; })) << "nothing completes";
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(own->state(), IBV_QPS_ERR);
  const ibv_sge piece = own->piece(0, 64);
  EXPECT_EQ(own->post_send(send_request(8), {&piece, 1}), 0);
  EXPECT_EQ(own->completion().status, IBV_WC_WR_FLUSH_ERR);
  // The device counts as unplugged, and every request fails.
  EXPECT_TRUE(soon([&] {
    ibv_port_attr port{};
    return ibv_query_port(own->context.get(), 1, &port) != 0;
  }));
  EXPECT_EQ(ibv_alloc_pd(own->context.get()), nullptr);
  EXPECT_EQ(errno, EIO);
  ibv_async_event event{};
  do {  // earlier events may come first
    ASSERT_EQ(ibv_get_async_event(own->context.get(), &event), 0);
    ibv_ack_async_event(&event);
  } while (event.event_type != IBV_EVENT_DEVICE_FATAL);

  const TimePoint before = MonotonicClock::now();
  own.reset();
  EXPECT_LT(MonotonicClock::now() - before, kSoon) << "to close what is gone takes no time";
  program.check();

  // The same program can open its device again.
  Pair again;
  send(again.a, again.b);
  EXPECT_EQ(again.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(again.b.completion().status, IBV_WC_SUCCESS);
}

TEST(LostDescriptors, AreNeverReadWrittenOrClosedAsSomebodyElses) {
  isolated(lose_everything);
}

// The program calls no verb while packets come, so the engine thread must notice.
TEST(LostDescriptors, AreMissedByTheEngineThreadToo) {
  isolated([] {
    raise_limit();
    Helper helper = Helper::start("lost_descriptors_sender");
    auto own = std::make_unique<Endpoint>(Options{.timeout = 8, .retries = 3});
    const auto theirs = helper.line().hear<Address>();
    helper.line().tell(own->address());
    own->connect(theirs);
    ASSERT_TRUE(helper.line().hear<bool>());
    const int line = ::fcntl(helper.line().fd(), F_DUPFD_CLOEXEC, kHighest + 100);
    ASSERT_EQ(::syscall(SYS_close_range, 3u, static_cast<unsigned>(line) - 1, 0u), 0);
    ASSERT_EQ(::syscall(SYS_close_range, static_cast<unsigned>(line) + 1, ~0u, 0u), 0);
    ProgramsOwn program;
    // The peer's WRITEs fail by its retry counter.
    ibv_qp_state state{};
    ASSERT_EQ(::read(line, &state, sizeof state), static_cast<ssize_t>(sizeof state));
    EXPECT_EQ(state, IBV_QPS_ERR);
    own.reset();
    program.check();
  });
}

// Closes the device at once, with no verb in between that could notice.
TEST(LostDescriptors, DeviceIsClosedWithoutAWordToAnybody) {
  isolated([] {
    raise_limit();
    auto pair = std::make_unique<Pair>();
    send(pair->a, pair->b);
    EXPECT_EQ(pair->a.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair->b.completion().status, IBV_WC_SUCCESS);
    close_all();
    ProgramsOwn program;
    const TimePoint before = MonotonicClock::now();
    pair.reset();
    EXPECT_LT(MonotonicClock::now() - before, kSoon);
    program.check();
  });
}

// The program closes a number of its own twice by mistake. Our descriptors have higher numbers.
TEST(LostDescriptors, ClosingOnesOwnTwiceDoesNoHarm) {
  isolated([] {
    constexpr int kProgramsNumbers = 256;
    raise_limit();
    const int first = ::dup(0);
    ASSERT_EQ(::close(first), 0);
    Pair pair;
    for (int fd = first; fd < kProgramsNumbers; ++fd) {
      const auto knows = [fd](const Endpoint& endpoint) {
        return fd == endpoint.context->async_fd || fd == endpoint.context->cmd_fd;
      };
      if (!knows(pair.a) && !knows(pair.b)) ::close(fd);
    }
    const TimePoint seen = MonotonicClock::now() + std::chrono::milliseconds(5);
    do {
      send(pair.a, pair.b);
      ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
      ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
    } while (MonotonicClock::now() < seen);
    Pair another;
    send(another.a, another.b);
    EXPECT_EQ(another.a.completion().status, IBV_WC_SUCCESS);
  });
}

}  // namespace
}  // namespace verbena::adapter::testing
