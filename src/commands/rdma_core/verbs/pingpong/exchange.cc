// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/exchange.h"

#include <cerrno>

#include "base/format.h"
#include "commands/rdma_core/common/complaint.h"
#include "commands/rdma_core/verbs/pingpong/tcp.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kMaxAddresses = 256;
const std::string kDoneWord("done\0", 5);

bool send_all(const UniqueFd& fd, const std::vector<Address>& addresses) {
  for (const Address& each : addresses) {
    if (write_all(fd, each.encoded())) continue;
    complain_of(errno, "Couldn't send local address");
    return false;
  }
  return true;
}

// Reports a missing address as rdma-core's programs do: the role, the number of bytes received, the address's
// index.
void complain_of_read(const PingpongProgram& program, const Settings& settings, int error, size_t got,
                      size_t index) {
  const std::string who = settings.serves() ? "server" : "client";
  const std::string which = program.numbered ? verbena::format(" [{}]", index) : "";
  if (!settings.serves() && !program.numbered) {
    complain(verbena::format("client read/write: {}", reason(error)));
    complain("Couldn't read/write remote address", "the server tells why it could not connect");
    return;
  }
  complain(verbena::format("{} read: {}", who, reason(error)));
  complain(verbena::format("{}/{}: Couldn't read remote address{}", got, Address::kLength, which));
}

std::optional<std::vector<Address>> read_all(const UniqueFd& fd, const PingpongProgram& program,
                                             const Settings& settings) {
  std::vector<Address> addresses;
  for (size_t i = 0; i < told_addresses(program); ++i) {
    std::string message;
    if (!read_exactly(fd, Address::kLength, message)) {
      complain_of_read(program, settings, errno, message.size(), i);
      return std::nullopt;
    }
    const auto address = Address::decode(message);
    if (!address) {
      complain("The peer's address is none", verbena::format("is it {} that runs there?", program.name));
      return std::nullopt;
    }
    addresses.push_back(*address);
  }
  return addresses;
}

bool complain_of_end(const PingpongProgram& program, int error) {
  complain(verbena::format("{}: {}", program.numbered ? "client write" : "Couldn't send/recv local address",
                           reason(error)),
           "the client tells why it could not connect");
  return false;
}

bool hear_done(const UniqueFd& fd, const PingpongProgram& program) {
  std::string message;
  return read_exactly(fd, kDoneWord.size(), message) || complain_of_end(program, errno);
}

}  // namespace

size_t told_addresses(const PingpongProgram& program) {
  return program.shared_receives ? kMaxAddresses : 1;
}

std::optional<std::vector<Address>> exchange(
    const PingpongProgram& program, const Settings& settings, std::vector<Address> local,
    const std::function<bool(const std::vector<Address>&)>& connect_server) {
  local.resize(told_addresses(program));
  if (settings.serves()) {
    UniqueFd listening = listen_on(settings.tcp_port, 1);
    if (!listening) return std::nullopt;
    const UniqueFd fd = accept_on(listening);
    listening.reset();
    if (!fd) return std::nullopt;
    auto remote = read_all(fd, program, settings);
    if (!remote) return std::nullopt;
    if (!connect_server(*remote)) {
      complain("Couldn't connect to remote QP");
      return std::nullopt;
    }
    if (!send_all(fd, local) || !hear_done(fd, program)) return std::nullopt;
    return remote;
  }
  const UniqueFd fd = connect_to(settings.server, settings.tcp_port);
  if (!fd || !send_all(fd, local)) return std::nullopt;
  auto remote = read_all(fd, program, settings);
  if (!remote) return std::nullopt;
  if (!write_all(fd, kDoneWord)) {
    complain_of(errno, "client write");
    return std::nullopt;
  }
  return remote;
}

}  // namespace verbena::rdma_core
