// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/foreign_socket.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::test {

// A descriptor whose last close blocks for 30 seconds: a TCP socket with SO_LINGER and unsent data, whose
// peer reads nothing. Only the peer can end this earlier.
class LingeringSocket {
 public:
  static constexpr Duration kLingers = std::chrono::seconds(30);
  // Longer than any operation that does not close the socket takes, even on a busy machine.
  static constexpr Duration kAtOnce = std::chrono::seconds(5);

  LingeringSocket() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(listener.get(), name, bytes), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), name, &bytes), 0);
    near_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(near_.get(), name, bytes), 0) << "there is no loopback";
    far_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(far_);
    fill();
    linger(near_.get(), std::chrono::duration_cast<std::chrono::seconds>(kLingers));
  }

  // The descriptor, to be sent to a process.
  int fd() const { return near_.get(); }
  // Returns our own descriptor. Closing it blocks only if it is the last one.
  UniqueFd take() { return std::move(near_); }
  void reset() { near_.reset(); }
  // Ends a blocked close, by a reset from the peer.
  void cut_short() {
    linger(far_.get(), std::chrono::seconds(0));
    far_.reset();
  }

 private:
  static void linger(int fd, std::chrono::seconds time) {
    const ::linger value{.l_onoff = 1, .l_linger = static_cast<int>(time.count())};
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value), 0);
  }
  void fill() {
    static constexpr std::array<char, 65'536> kNothing{};
    while (::send(near_.get(), kNothing.data(), kNothing.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    EXPECT_EQ(errno, EAGAIN);
  }

  UniqueFd near_;
  UniqueFd far_;
};

inline size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Polls `condition` for up to 30 seconds. Returns whether it became true.
template <class Condition>
bool becomes_true(Condition condition) {
  const TimePoint end = MonotonicClock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (MonotonicClock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Waits until all sockets are shut down that were passed to discard_socket() before. As below, it takes two.
inline void await_hang_ups() {
  for (int round = 0; round < 2; ++round) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    discard_socket(UniqueFd(ends[0]));
    const UniqueFd theirs(ends[1]);
    char byte;
    EXPECT_TRUE(becomes_true([&] { return ::recv(theirs.get(), &byte, sizeof byte, 0) == 0; }));
  }
}

// Waits until all descriptors discarded before are closed. They are closed in rounds, and one that is added
// during a round is closed in this or the next one. So this waits for two descriptors of its own, one after
// the other.
inline void await_discards() {
  await_hang_ups();
  for (int round = 0; round < 2; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd reading(ends[0]);
    discard(UniqueFd(ends[1]));
    char byte;
    EXPECT_TRUE(becomes_true([&] { return ::read(reading.get(), &byte, sizeof byte) == 0; }));
  }
}

// Whether a thread of this name is asleep in the kernel.
inline bool is_asleep(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    if (line.find("(" + thread + ") S") != std::string::npos) return true;
  }
  return false;
}

// Whether the thread that closes discarded descriptors (base/foreign_socket.h) is asleep.
inline bool is_discarding() {
  return is_asleep("verbena-discard");
}

}  // namespace verbena::test
