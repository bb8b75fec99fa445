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

#include "base/discard.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::test {

// A descriptor whose last close takes half a minute: a TCP socket that lingers, as it has something to send
// and its far end reads nothing. Only the far end cuts that short.
class LingeringSocket {
 public:
  static constexpr Duration kLingers = std::chrono::seconds(30);
  // Who does not close it needs less than that, wherever the machine is busy with something else.
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

  // What is to be sent to somebody.
  int fd() const { return near_.get(); }
  // Ours; closing it takes no time only as long as it is not the last.
  UniqueFd take() { return std::move(near_); }
  void reset() { near_.reset(); }
  // Who is about to close it is done.
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

// Whether it comes to be true, within half a minute.
template <class Condition>
bool becomes_true(Condition condition) {
  const TimePoint end = MonotonicClock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (MonotonicClock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Waits until what has been discarded before is closed. It is closed in rounds, and what comes in the midst
// of one is closed in this one or in the next: so the second that is put there is closed after all of the
// first.
inline void await_discards() {
  for (int round = 0; round < 2; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd reading(ends[0]);
    discard(UniqueFd(ends[1]));
    char byte;
    EXPECT_TRUE(becomes_true([&] { return ::read(reading.get(), &byte, sizeof byte) == 0; }));
  }
}

// Whether the thread that closes what is discarded (base/discard.h) sleeps in the kernel.
inline bool is_discarding() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    if (line.find("(verbena-discard) S") != std::string::npos) return true;
  }
  return false;
}

}  // namespace verbena::test
