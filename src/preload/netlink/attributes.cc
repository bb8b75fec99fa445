// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/attributes.h"

#include <cstring>

#include <linux/netlink.h>

namespace verbena::rdma_netlink {

Attributes& Attributes::put(uint16_t type, std::span<const std::byte> value) {
  const nlattr header{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + value.size()), .nla_type = type};
  const size_t start = bytes_.size();
  bytes_.resize(start + NLA_ALIGN(NLA_HDRLEN + value.size()));
  std::memcpy(&bytes_[start], &header, sizeof header);
  if (!value.empty()) std::memcpy(&bytes_[start + NLA_HDRLEN], value.data(), value.size());
  return *this;
}

Attributes& Attributes::put_text(uint16_t type, std::string_view text) {
  Bytes value(text.size() + 1);
  std::memcpy(value.data(), text.data(), text.size());
  return put(type, value);
}

// Omits NLA_F_NESTED, which this protocol does not use.
Attributes& Attributes::put_nest(uint16_t type, const Attributes& inner) {
  return put(type, inner.bytes());
}

}  // namespace verbena::rdma_netlink
