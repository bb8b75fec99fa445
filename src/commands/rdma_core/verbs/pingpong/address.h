// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// Where a queue pair is to be reached, as the two ends of a pingpong tell each other over TCP: a line of
// hexadecimal numbers with colons between them and a zero byte behind, always of the same length.
struct Address {
  static constexpr size_t kLength = sizeof "0000:000000:000000:00000000000000000000000000000000";

  uint32_t lid = 0;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid = {};

  std::string encoded() const;  // kLength bytes
  // Nothing if it is no such line: the peer is a stranger.
  static std::optional<Address> decode(std::string_view message);
};

// The same for XRC, where a client has a queue pair for each direction, and a shared receive queue.
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
