// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/exchange.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>

#include <netdb.h>
#include <sys/socket.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kLidDigits = 4;
constexpr size_t kNumberDigits = 6;
constexpr size_t kGidDigits = 32;

std::optional<uint32_t> hexadecimal(std::string_view digits) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string gid_digits(const ibv_gid& gid) {
  std::string digits;
  for (const uint8_t byte : gid.raw) digits += verbena::format("{:02x}", byte);
  return digits;
}

bool read_gid(std::string_view digits, ibv_gid& gid) {
  for (size_t i = 0; i < sizeof gid.raw; ++i) {
    const auto byte = hexadecimal(digits.substr(2 * i, 2));
    if (!byte) return false;
    gid.raw[i] = static_cast<uint8_t>(*byte);
  }
  return true;
}

// Parses a LID, further numbers and a GID. A colon follows each number, a zero byte the GID.
bool read_all(std::string_view message, std::span<uint32_t* const> numbers, ibv_gid& gid) {
  size_t digits = kLidDigits;
  for (uint32_t* number : numbers) {
    const auto value = hexadecimal(message.substr(0, digits));
    if (!value || message[digits] != ':') return false;
    *number = *value;
    message.remove_prefix(digits + 1);
    digits = kNumberDigits;
  }
  return message[kGidDigits] == '\0' && read_gid(message.substr(0, kGidDigits), gid);
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses look_up(const char* host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found); error != 0) {
    const std::string whom = host ? verbena::format("{}:{}", host, port) : verbena::format("port {}", port);
    fail(verbena::format("{} for {}", gai_strerror(error), whom));
  }
  return {found, freeaddrinfo};
}

UniqueFd socket_for(const addrinfo& address) {
  return UniqueFd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

UniqueFd bound_to(const addrinfo& address, int waiting) {
  UniqueFd fd = socket_for(address);
  const int one = 1;
  if (!fd) return fd;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool listens =
      bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 && listen(fd.get(), waiting) == 0;
  if (!listens) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

constexpr size_t kMaxAddresses = 256;
const std::string kDoneWord("done\0", 5);

// Returns the number of addresses that each end sends, whatever its number of queue pairs: 256 with a shared
// receive queue, else 1. Unused addresses are zero.
size_t told_addresses(const PingpongProgram& program) {
  return program.shared_receives ? kMaxAddresses : 1;
}

void send_all(const UniqueFd& fd, const std::vector<Address>& addresses) {
  for (const Address& each : addresses) {
    if (!write_all(fd, each.encoded())) fail_of(errno, "Couldn't send local address");
  }
}

// Fails for a missing address as rdma-core's programs do: with the role, the number of bytes received, and
// the address's index.
[[noreturn]] void fail_to_read(const PingpongProgram& program, const Settings& settings, int error,
                               size_t got, size_t index) {
  const std::string who = settings.serves() ? "server" : "client";
  const std::string which = program.shared_receives ? verbena::format(" [{}]", index) : "";
  if (!settings.serves() && !program.shared_receives) {
    complain(verbena::format("client read/write: {}", reason(error)));
    fail("Couldn't read/write remote address", "the server tells why it could not connect");
  }
  complain(verbena::format("{} read: {}", who, reason(error)));
  fail(verbena::format("{}/{}: Couldn't read remote address{}", got, Address::kLength, which));
}

std::vector<Address> read_all(const UniqueFd& fd, const PingpongProgram& program, const Settings& settings) {
  std::vector<Address> addresses;
  for (size_t i = 0; i < told_addresses(program); ++i) {
    std::string message;
    if (!read_exactly(fd, Address::kLength, message)) {
      fail_to_read(program, settings, errno, message.size(), i);
    }
    const auto address = Address::decode(message);
    if (!address) fail_for_strange_address(program);
    addresses.push_back(*address);
  }
  return addresses;
}

void hear_done(const UniqueFd& fd, const PingpongProgram& program) {
  std::string message;
  if (read_exactly(fd, kDoneWord.size(), message)) return;
  const char* what = program.shared_receives ? "client write" : "Couldn't send/recv local address";
  fail(verbena::format("{}: {}", what, reason(errno)), "the client tells why it could not connect");
}

}  // namespace

std::string Address::encoded() const {
  return verbena::format("{:04x}:{:06x}:{:06x}:{}", lid, qpn, psn, gid_digits(gid)) + '\0';
}

std::optional<Address> Address::decode(std::string_view message) {
  Address address;
  const std::array numbers = {&address.lid, &address.qpn, &address.psn};
  if (message.size() != kLength || !read_all(message, numbers, address.gid)) return std::nullopt;
  return address;
}

std::string XrcAddress::encoded() const {
  return verbena::format("{:04x}:{:06x}:{:06x}:{:06x}:{:06x}:{}", lid, receiving_qpn, sending_qpn, psn, srqn,
                         gid_digits(gid)) +
         '\0';
}

std::optional<XrcAddress> XrcAddress::decode(std::string_view message) {
  XrcAddress address;
  const std::array numbers = {&address.lid, &address.receiving_qpn, &address.sending_qpn, &address.psn,
                              &address.srqn};
  if (message.size() != kLength || !read_all(message, numbers, address.gid)) return std::nullopt;
  return address;
}

UniqueFd connect_to(const std::string& server, int port) {
  const Addresses addresses = look_up(server.c_str(), port, 0);
  int error = 0;
  for (const addrinfo* each = addresses.get(); each; each = each->ai_next) {
    UniqueFd fd = socket_for(*each);
    if (fd && connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
    error = errno;
  }
  fail_of(error, verbena::format("Couldn't connect to {}:{}", server, port),
          error == ECONNREFUSED ? "is the server started there, with the same -p?" : "");
}

UniqueFd listen_on(int port, int waiting) {
  const Addresses addresses = look_up(nullptr, port, AI_PASSIVE);
  int error = 0;
  // An IPv6 socket accepts both families; without IPv6, use IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* each = addresses.get(); each; each = each->ai_next) {
      if (each->ai_family != family) continue;
      if (UniqueFd fd = bound_to(*each, waiting)) return fd;
      error = errno;
    }
  }
  fail_of(error, verbena::format("Couldn't listen to port {}", port),
          error == EADDRINUSE ? "another server has it; -p says another port" : "");
}

UniqueFd accept_on(const UniqueFd& listening, const std::string& for_whom) {
  UniqueFd fd;
  do {
    fd.reset(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  } while (!fd && errno == EINTR);
  if (!fd) fail_of(errno, "accept() failed" + for_whom);
  return fd;
}

bool read_exactly(const UniqueFd& fd, size_t size, std::string& read) {
  read.clear();
  std::string part(size, '\0');
  while (read.size() < size) {
    const ssize_t got = recv(fd.get(), part.data(), size - read.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = 0;
      return false;
    }
    read.append(part, 0, static_cast<size_t>(got));
  }
  return true;
}

bool write_all(const UniqueFd& fd, const std::string& bytes) {
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t now = send(fd.get(), bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return false;
    written += static_cast<size_t>(now);
  }
  return true;
}

std::string reason(int error) {
  return error == 0 ? "the peer has ended the connection" : std::strerror(error);
}

void fail_for_strange_address(const PingpongProgram& program) {
  fail("The peer's address is none", verbena::format("is it {} that runs there?", program.name));
}

std::vector<Address> exchange(const PingpongProgram& program, const Settings& settings,
                              std::vector<Address> local,
                              const std::function<void(const std::vector<Address>&)>& connect_server) {
  local.resize(told_addresses(program));
  if (!settings.serves()) {
    const UniqueFd fd = connect_to(settings.server, settings.tcp_port);
    send_all(fd, local);
    std::vector<Address> remote = read_all(fd, program, settings);
    if (!write_all(fd, kDoneWord)) fail_of(errno, "client write");
    return remote;
  }
  UniqueFd listening = listen_on(settings.tcp_port, 1);
  const UniqueFd fd = accept_on(listening);
  listening.reset();
  std::vector<Address> remote = read_all(fd, program, settings);
  try {
    connect_server(remote);
  } catch (const Failure&) {
    fail("Couldn't connect to remote QP");
  }
  send_all(fd, local);
  hear_done(fd, program);
  return remote;
}

}  // namespace verbena::rdma_core
