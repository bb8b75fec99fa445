// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "base/result.h"

namespace verbena::rdma_netlink {

// A message from a program to the kernel's RDMA subsystem, parsed into its attributes. Refers to the bytes
// from which it was parsed. Trusts nothing in these bytes, because any program may send them.
class Request {
 public:
  struct Header {
    uint16_t type = 0;
    uint16_t flags = 0;
    uint32_t sequence = 0;
  };

  // Parses `payload`, which follows the message's header. Returns EINVAL if an attribute is malformed.
  static Result<Request> parse(const Header& header, std::span<const std::byte> payload);

  const Header& header() const { return header_; }
  uint16_t client() const { return RDMA_NL_GET_CLIENT(header_.type); }
  uint16_t command() const { return RDMA_NL_GET_OP(header_.type); }
  bool wants_dump() const { return (header_.flags & NLM_F_DUMP) == NLM_F_DUMP; }

  bool has(rdma_nldev_attr type) const { return attributes_[type].data() != nullptr; }
  // Return an attribute's number; nullopt if the attribute is absent or has another size.
  std::optional<uint32_t> u32(rdma_nldev_attr type) const;
  std::optional<uint8_t> u8(rdma_nldev_attr type) const;
  // Returns an attribute's text up to its first zero; nullopt if the attribute is absent.
  std::optional<std::string> text(rdma_nldev_attr type) const;
  std::span<const std::byte> nest(rdma_nldev_attr type) const { return attributes_[type]; }

 private:
  Header header_;
  std::array<std::span<const std::byte>, RDMA_NLDEV_ATTR_MAX> attributes_{};
};

}  // namespace verbena::rdma_netlink
