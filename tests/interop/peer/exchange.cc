// SPDX-License-Identifier: Apache-2.0
#include "interop/peer/exchange.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::interop {
namespace {

constexpr std::chrono::seconds kPatience{60};

int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw std::runtime_error{"socket"};
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

sockaddr_in address_of(in_addr host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr = host;
  return address;
}

}  // namespace

Exchange Exchange::listen(int port) {
  const int listener = tcp_socket();
  const sockaddr_in address = address_of(in_addr{INADDR_ANY}, port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) || ::listen(listener, 1))
    throw std::runtime_error{"the port is taken"};
  const int fd = accept(listener, nullptr, nullptr);
  close(listener);
  if (fd < 0) throw std::runtime_error{"nobody came"};
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return Exchange{fd};
}

Exchange Exchange::connect(const std::string& host, int port) {
  in_addr to{};
  if (inet_pton(AF_INET, host.c_str(), &to) != 1) throw std::runtime_error{"no IPv4 address: " + host};
  const sockaddr_in address = address_of(to, port);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const int fd = tcp_socket();
    if (!::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address)) return Exchange{fd};
    close(fd);
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"the server does not listen"};
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

void Exchange::tell(const Words& words) {
  const std::size_t size = words.size() * sizeof(words[0]);
  if (send(fd_, words.data(), size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    throw std::runtime_error{"the other end is gone"};
}

Words Exchange::hear(std::size_t count) {
  Words words(count);
  const std::size_t size = count * sizeof(words[0]);
  if (recv(fd_, words.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size))
    throw std::runtime_error{"the other end is gone or silent"};
  return words;
}

Words Exchange::swap(const Words& words) {
  tell(words);
  return hear(words.size());
}

void Exchange::meet() {
  swap({0});
}

}  // namespace verbena::interop
