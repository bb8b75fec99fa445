// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

// A TCP connection over which two programs exchange the addresses of their queue pairs. Only the lower layer
// needs it: verbena/cm.hpp has connections of its own. It leaves out byte orders, names and authentication.
namespace example {

class exchange {
 public:
  // Waits for one connection to the port.
  static exchange accept_one(const std::string& port) {
    const addresses found = look_up(nullptr, port);
    exchange door(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    check(::setsockopt(door.socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "set a socket option");
    check(::bind(door.socket_, found->ai_addr, found->ai_addrlen), "bind a socket");
    check(::listen(door.socket_, 1), "listen");
    std::fprintf(stderr, "listening at port %s\n", port.c_str());
    return exchange(::accept(door.socket_, nullptr, nullptr));
  }
  static exchange connect(const std::string& host, const std::string& port) {
    const addresses found = look_up(host.c_str(), port);
    exchange made(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(::connect(made.socket_, found->ai_addr, found->ai_addrlen), "connect to the peer");
    return made;
  }
  exchange(exchange&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  exchange& operator=(exchange&&) = delete;
  ~exchange() {
    if (socket_ >= 0) ::close(socket_);
  }

  // Sends a value, and returns the peer's. Both ends call it, so both know that the other has come this far.
  template <class T>
  T swap(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    check(::send(socket_, &mine, sizeof mine, MSG_NOSIGNAL), "send to the peer");
    T theirs;
    const ssize_t received = ::recv(socket_, &theirs, sizeof theirs, MSG_WAITALL);
    check(received, "receive from the peer");
    if (static_cast<std::size_t>(received) != sizeof theirs) throw std::runtime_error("the peer has ended");
    return theirs;
  }

 private:
  using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

  explicit exchange(int socket) : socket_(socket) { check(socket, "make a connection"); }
  static void check(ssize_t returned, const char* tried) {
    if (returned < 0) throw std::system_error(errno, std::generic_category(), tried);
  }
  static addresses look_up(const char* host, const std::string& port) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(host, port.c_str(), &wanted, &found);
    if (code != 0) throw std::runtime_error(std::string("look up an address: ") + ::gai_strerror(code));
    return {found, ::freeaddrinfo};
  }

  int socket_;
};

}  // namespace example
