// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <infiniband/verbs.h>

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

}  // namespace verbena::rdma_core
