// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>

namespace verbena::rsockets::testing {

// Owns an rsocket.
class Rsocket {
 public:
  Rsocket() = default;
  explicit Rsocket(int number) : number_(number) {}
  Rsocket(Rsocket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Rsocket& operator=(Rsocket&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Rsocket() { close(); }

  operator int() const { return number_; }
  void close() {
    if (number_ >= 0) ::rclose(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

// The loopback address of either family.
struct Loopback {
  explicit Loopback(int family, in_port_t port = 0) {
    if (family == AF_INET) {
      v4.sin_family = AF_INET;
      v4.sin_port = port;
      v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = port;
      v6.sin6_addr = in6addr_loopback;
    }
  }
  sockaddr* get() { return &any; }
  socklen_t size() const { return any.sa_family == AF_INET ? sizeof v4 : sizeof v6; }

  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};
  };
};

inline in_port_t port_of(int number) {
  sockaddr_in6 name{};
  socklen_t length = sizeof name;
  EXPECT_EQ(::rgetsockname(number, reinterpret_cast<sockaddr*>(&name), &length), 0) << errno;
  return name.sin6_port;  // sin_port has the same offset
}

inline Rsocket listener(int backlog = 16, int family = AF_INET) {
  Rsocket socket(::rsocket(family, SOCK_STREAM, 0));
  EXPECT_GE(socket, 0) << errno;
  Loopback any(family);
  EXPECT_EQ(::rbind(socket, any.get(), any.size()), 0) << errno;
  EXPECT_EQ(::rlisten(socket, backlog), 0) << errno;
  return socket;
}

inline int connect_to(int socket, in_port_t port, int family = AF_INET) {
  Loopback there(family, port);
  return ::rconnect(socket, there.get(), there.size());
}

inline Rsocket connected_to(in_port_t port, int family = AF_INET) {
  Rsocket socket(::rsocket(family, SOCK_STREAM, 0));
  EXPECT_EQ(connect_to(socket, port, family), 0) << errno;
  return socket;
}

// A connection with both its ends.
struct Pair {
  explicit Pair(int family = AF_INET) : Pair(listener(16, family), family) {}
  Pair(const Rsocket& from, int family) {
    client = connected_to(port_of(from), family);
    server = Rsocket(::raccept(from, nullptr, nullptr));
    EXPECT_GE(server, 0) << errno;
  }
  Rsocket client, server;
};

inline void set_nonblocking(int socket, bool on = true) {
  ASSERT_EQ(::rfcntl(socket, F_SETFL, on ? O_NONBLOCK : 0), 0) << errno;
}

inline void set_option(int socket, int level, int name, int value) {
  ASSERT_EQ(::rsetsockopt(socket, level, name, &value, sizeof value), 0) << errno;
}

inline int option(int socket, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::rgetsockopt(socket, level, name, &value, &length), 0) << errno;
  return value;
}

// Polls for up to ten seconds and returns the events of rpoll(); 0 if none.
inline short poll_for(int socket, short events, int timeout = 10000) {
  pollfd one{socket, events, 0};
  EXPECT_GE(::rpoll(&one, 1, timeout), 0) << errno;
  return one.revents;
}

inline std::string receive_text(int socket, size_t most = 100, int flags = 0) {
  std::string text(most, '\0');
  const ssize_t got = ::rrecv(socket, text.data(), text.size(), flags);
  EXPECT_GE(got, 0) << errno;
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

inline void send_text(int socket, const std::string& text) {
  ASSERT_EQ(::rsend(socket, text.data(), text.size(), 0), static_cast<ssize_t>(text.size())) << errno;
}

}  // namespace verbena::rsockets::testing
