// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/format.h"
#include "base/unique_fd.h"
#include "commands/perf/addresses.h"
#include "commands/perf/exchange.h"
#include "commands/perf/failure.h"

namespace verbena::perf {
namespace {

constexpr int kPartingPatience = 5000;  // milliseconds

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(UniqueFd connection) : connection_(std::move(connection)) {}

  void write(std::span<const char> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::send(connection_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("cannot write to the peer");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  void read(std::span<char> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::recv(connection_.get(), bytes.data(), bytes.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("cannot read from the peer");
      if (count == 0) throw std::runtime_error("cannot read from the peer: it has ended the connection");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  void write(const Keys& keys) override { write(std::span<const char>(write_keys(keys))); }
  Keys read_keys() override {
    std::array<char, kKeysLength> text{};
    read(text);
    const auto keys = perf::read_keys(text);
    if (!keys)
      throw std::runtime_error(
          "cannot read from the peer: it has sent something else than the keys of a queue pair");
    return *keys;
  }
  void end() override { write(std::span<const char>("done")); }
  void part() override {
    ::shutdown(connection_.get(), SHUT_WR);
    pollfd watched{connection_.get(), POLLRDHUP, 0};
    ::poll(&watched, 1, kPartingPatience);
  }
  int descriptor() const override { return connection_.get(); }

 private:
  UniqueFd connection_;
};

UniqueFd make_socket(const addrinfo& address) {
  return UniqueFd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

UniqueFd connect(const Parameters& parameters) {
  const Addresses all = look_up(parameters.server, parameters.port);
  int reason = 0;
  for (const addrinfo* each = all.get(); each != nullptr; each = each->ai_next) {
    UniqueFd made = make_socket(*each);
    if (!parameters.source_address.empty()) {
      const Addresses own = look_up(parameters.source_address, 0);
      if (::bind(made.get(), own->ai_addr, own->ai_addrlen) != 0)
        fail("cannot use " + parameters.source_address);
    }
    if (made && ::connect(made.get(), each->ai_addr, each->ai_addrlen) == 0) return made;
    reason = errno;
  }
  fail(verbena::format("Couldn't connect to {}:{}", parameters.server, parameters.port), reason);
}

}  // namespace

std::unique_ptr<Channel> channel_over(UniqueFd connection) {
  return std::make_unique<TcpChannel>(std::move(connection));
}

UniqueFd listen_by_tcp(const Parameters& parameters) {
  const Addresses all = look_up(parameters.source_address, parameters.port);
  int reason = 0;
  for (const addrinfo* each = all.get(); each != nullptr; each = each->ai_next) {
    UniqueFd listener = make_socket(*each);
    const int yes = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(listener.get(), each->ai_addr, each->ai_addrlen) == 0 && ::listen(listener.get(), 1) == 0)
      return listener;
    reason = errno;
  }
  fail(verbena::format("Couldn't listen to port {}", parameters.port), reason);
}

UniqueFd accept_client(const UniqueFd& listener) {
  for (;;) {
    UniqueFd made(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (made) return made;
    if (errno != EINTR && errno != ECONNABORTED) fail("cannot accept a client");
  }
}

std::unique_ptr<Channel> connect_by_tcp(const Parameters& parameters) {
  return channel_over(parameters.is_client() ? connect(parameters)
                                             : accept_client(listen_by_tcp(parameters)));
}

}  // namespace verbena::perf
