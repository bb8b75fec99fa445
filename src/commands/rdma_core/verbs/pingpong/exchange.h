// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <infiniband/verbs.h>

#include "base/unique_fd.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {

// The address of a queue pair, which the ends of a pingpong exchange over TCP. The encoding is hexadecimal
// numbers of fixed length, separated by colons, with a zero byte at the end.
struct Address {
  static constexpr size_t kLength = sizeof "0000:000000:000000:00000000000000000000000000000000";

  uint32_t lid = 0;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid = {};

  std::string encoded() const;  // has kLength bytes
  // Decodes a message from an untrusted peer. Returns nullopt if it is malformed.
  static std::optional<Address> decode(std::string_view message);
};

// The address of an end of a pingpong over XRC: a queue pair for each direction, and a shared receive queue.
// Encoded like Address.
struct XrcAddress {
  static constexpr size_t kLength =
      sizeof "0000:000000:000000:000000:000000:00000000000000000000000000000000";

  uint32_t lid = 0;
  uint32_t receiving_qpn = 0;
  uint32_t sending_qpn = 0;
  uint32_t psn = 0;
  uint32_t srqn = 0;
  ibv_gid gid = {};

  std::string encoded() const;
  static std::optional<XrcAddress> decode(std::string_view message);
};

// Open the TCP connection over which the ends exchange addresses. Fail with the message of rdma-core's
// program. `waiting` is the backlog of listen(2). `for_whom` is added to the message about a failed
// accept(2).
UniqueFd connect_to(const std::string& server, int port);
UniqueFd listen_on(int port, int waiting);
UniqueFd accept_on(const UniqueFd& listening, const std::string& for_whom = {});

// Reads exactly `size` bytes into `read`. If not all bytes arrive, returns false with errno, and `read` holds
// the bytes that arrived. errno is 0 if the peer closed the connection.
bool read_exactly(const UniqueFd& fd, size_t size, std::string& read);
// Writes all bytes. Returns false, with errno, after an error.
bool write_all(const UniqueFd& fd, const std::string& bytes);

// Returns the text for an errno of read_exactly(); 0 means that the peer closed the connection.
std::string reason(int error);

// Fails because the peer sent no address.
[[noreturn]] void fail_for_strange_address(const PingpongProgram& program);

// Exchanges addresses with the peer over TCP, and returns the peer's addresses. There are 256 with a shared
// receive queue, else 1; unused addresses are zero. A server calls `connect_server` with the client's
// addresses before it replies, since the client may send as soon as it has the reply.
std::vector<Address> exchange(const PingpongProgram& program, const Settings& settings,
                              std::vector<Address> local,
                              const std::function<void(const std::vector<Address>&)>& connect_server);

}  // namespace verbena::rdma_core
