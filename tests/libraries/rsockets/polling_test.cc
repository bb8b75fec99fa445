// SPDX-License-Identifier: Apache-2.0
// rpoll() and rselect(): rsockets and plain descriptors, several threads.
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <thread>

#include <sys/epoll.h>
#include <unistd.h>

#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

TEST(Polling, TimesOut) {
  Pair pair;
  EXPECT_EQ(poll_for(pair.client, POLLIN, 20), 0);
  EXPECT_EQ(poll_for(pair.client, POLLIN, 0), 0);
}

TEST(Polling, FreshConnectionIsWritableAndNotReadable) {
  Pair pair;
  EXPECT_EQ(poll_for(pair.client, POLLIN | POLLOUT), POLLOUT);
}

TEST(Polling, WakesWhenDataComes) {
  Pair pair;
  std::thread sender([&] { send_text(pair.client, "x"); });
  EXPECT_EQ(poll_for(pair.server, POLLIN), POLLIN);
  sender.join();
}

TEST(Polling, SeesTheEnd) {
  Pair pair;
  pair.client.close();
  EXPECT_NE(poll_for(pair.server, POLLIN) & POLLIN, 0);
  EXPECT_NE(poll_for(pair.server, 0) & POLLHUP, 0) << "asked for or not";
}

TEST(Polling, MixesPlainDescriptorsIn) {
  Pair pair;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pollfd list[] = {{ends[0], POLLIN, 0}, {pair.server, POLLIN, 0}, {-1, POLLIN, 0}};
  EXPECT_EQ(::rpoll(list, 3, 0), 0);
  std::thread writer([&] { EXPECT_EQ(::write(ends[1], "x", 1), 1); });
  EXPECT_EQ(::rpoll(list, 3, 10000), 1);
  writer.join();
  EXPECT_EQ(list[0].revents, POLLIN);
  EXPECT_EQ(list[1].revents, 0);
  EXPECT_EQ(list[2].revents, 0);
  send_text(pair.client, "x");
  ASSERT_EQ(poll_for(pair.server, POLLIN), POLLIN);
  EXPECT_EQ(::rpoll(list, 3, 10000), 2);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(::rpoll(list, 1, 0), 1);
  EXPECT_EQ(list[0].revents, POLLNVAL);
}

TEST(Polling, WakesEveryThreadThatIsConcerned) {
  Pair pair;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(poll_for(pair.server, POLLIN), POLLIN); });
  }
  send_text(pair.client, "x");
  for (std::thread& thread : threads) thread.join();
}

TEST(Polling, OneThreadReadsWhatAnotherPollsFor) {
  Pair pair;
  constexpr int kRounds = 2000;
  std::thread poller([&] {
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_NE(poll_for(pair.server, POLLIN) & POLLIN, 0) << i;
      char byte;
      ASSERT_EQ(::rrecv(pair.server, &byte, 1, MSG_DONTWAIT), 1) << errno;
      ASSERT_EQ(::rsend(pair.server, &byte, 1, 0), 1);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    char byte = static_cast<char>(i);
    ASSERT_EQ(::rsend(pair.client, &byte, 1, 0), 1);
    char back;
    ASSERT_EQ(::rrecv(pair.client, &back, 1, 0), 1);
    ASSERT_EQ(back, byte);
  }
  poller.join();
}

void nothing(int) {}

// Interrupts a waiting thread with signals.
class Interruption {
 public:
  explicit Interruption(int flags) {
    struct sigaction action {};
    action.sa_handler = nothing;
    action.sa_flags = flags;
    ::sigaction(SIGUSR1, &action, &before_);
  }
  ~Interruption() { ::sigaction(SIGUSR1, &before_, nullptr); }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Expects that wait() fails with EINTR.
  void expect_to_end(const std::function<int()>& wait) {
    std::atomic<bool> done{false};
    std::thread waiter([&] {
      EXPECT_EQ(wait(), -1);
      EXPECT_EQ(errno, EINTR);
      done = true;
    });
    while (!done) {
      ::pthread_kill(waiter.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    waiter.join();
  }
  // Returns the result of rrecv(), or -errno, if a byte comes after `signals` signals.
  ssize_t receive(const Pair& pair, int signals) {
    std::atomic<bool> done{false};
    ssize_t answer = 0;
    std::thread receiver([&] {
      char byte;
      answer = ::rrecv(pair.server, &byte, 1, 0);
      if (answer < 0) answer = -errno;
      done = true;
    });
    for (int i = 0; i < signals && !done; ++i) {
      ::pthread_kill(receiver.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    send_text(pair.client, "x");
    receiver.join();
    return answer;
  }

 private:
  struct sigaction before_ {};
};

TEST(Polling, IsInterruptedBySignals) {
  Pair pair;
  pollfd one{pair.server, POLLIN, 0};
  Interruption(0).expect_to_end([&] { return ::rpoll(&one, 1, -1); });
}

TEST(Receiving, GoesOnAfterHandlersThatAreInstalledSo) {
  Pair pair;
  EXPECT_EQ(Interruption(SA_RESTART).receive(pair, 1000), 1);
}

TEST(Receiving, GoesOnWhereCrashesAreReported) {
  Pair pair;
  struct sigaction action {
  }, before{};
  action.sa_handler = nothing;
  ASSERT_EQ(::sigaction(SIGILL, &action, &before), 0);
  EXPECT_EQ(Interruption(SA_RESTART).receive(pair, 1000), 1);
  ::sigaction(SIGILL, &before, nullptr);
}

TEST(Receiving, IsInterruptedByHandlersThatAreNot) {
  Pair pair;
  EXPECT_EQ(Interruption(0).receive(pair, 100000), -EINTR);
}

TEST(Selecting, SetsTheBitsOfWhatIsReady) {
  Pair pair;
  send_text(pair.client, "x");
  ASSERT_EQ(poll_for(pair.server, POLLIN), POLLIN);
  fd_set reading, writing;
  FD_ZERO(&reading);
  FD_ZERO(&writing);
  FD_SET(pair.client, &reading);
  FD_SET(pair.server, &reading);
  FD_SET(pair.client, &writing);
  EXPECT_EQ(::rselect(std::max<int>(pair.client, pair.server) + 1, &reading, &writing, nullptr, nullptr), 2);
  EXPECT_FALSE(FD_ISSET(pair.client, &reading));
  EXPECT_TRUE(FD_ISSET(pair.server, &reading));
  EXPECT_TRUE(FD_ISSET(pair.client, &writing));
}

TEST(Selecting, TimesOutWithEmptySets) {
  Pair pair;
  fd_set reading;
  FD_ZERO(&reading);
  FD_SET(pair.client, &reading);
  timeval time{0, 10000};
  EXPECT_EQ(::rselect(pair.client + 1, &reading, nullptr, nullptr, &time), 0);
  EXPECT_FALSE(FD_ISSET(pair.client, &reading));
}

TEST(Selecting, TheLongestTimeIsNoShortOne) {
  constexpr auto kMax = std::numeric_limits<time_t>::max();
  const timeval times[] = {{kMax, 0}, {kMax, 999999}, {0, kMax}, {kMax / 1000000000 * 2, 0}};
  Interruption interruption(0);
  for (timeval time : times) {
    interruption.expect_to_end([&] { return ::rselect(0, nullptr, nullptr, nullptr, &time); });
  }
}

// Functions of newer librdmacm releases, which the installed headers lack.
extern "C" {
int repoll_create(int size);
int repoll_ctl(int set, int operation, int fd, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int capacity, int timeout);
}

class EventSets : public ::testing::Test {
 protected:
  int control(int operation, int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return repoll_ctl(set_, operation, fd, &event);
  }

  Pair pair_;
  Rsocket set_{repoll_create(1)};
  epoll_event events_[4];
};

TEST_F(EventSets, RememberWhoIsInterestedInWhat) {
  ASSERT_GE(set_, 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, pair_.server, EPOLLIN), 0) << errno;
  EXPECT_EQ(repoll_wait(set_, events_, 4, 0), 0);
  std::thread sender([&] { send_text(pair_.client, "x"); });
  ASSERT_EQ(repoll_wait(set_, events_, 4, 10000), 1);
  sender.join();
  EXPECT_EQ(events_[0].events, EPOLLIN);
  EXPECT_EQ(events_[0].data.fd, pair_.server);
  EXPECT_EQ(repoll_wait(set_, events_, 4, 0), 1) << "as long as it is there";
  ASSERT_EQ(control(EPOLL_CTL_MOD, pair_.server, EPOLLIN | EPOLLONESHOT), 0);
  EXPECT_EQ(repoll_wait(set_, events_, 4, 0), 1);
  EXPECT_EQ(repoll_wait(set_, events_, 4, 0), 0) << "once";
  ASSERT_EQ(control(EPOLL_CTL_DEL, pair_.server, 0), 0);
}

TEST_F(EventSets, AnswerWithTheErrorsOfEpoll) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, pair_.server, EPOLLIN), 0);
  EXPECT_EQ(control(EPOLL_CTL_ADD, pair_.server, EPOLLIN), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(control(EPOLL_CTL_DEL, pair_.client, 0), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(control(EPOLL_CTL_MOD, pair_.server, EPOLLIN | EPOLLET), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(repoll_wait(pair_.server, events_, 4, 0), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace verbena::rsockets::testing
