// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/request.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace verbena::rdma_netlink {
namespace {

enum class Kind : uint8_t { kU8, kU32, kText, kNest };

// The types of known attributes. Like the kernel, checks only the length of others.
struct Rule {
  uint16_t type;
  Kind kind;
};
constexpr std::array kRules = std::to_array<Rule>({
    {RDMA_NLDEV_ATTR_DEV_INDEX, Kind::kU32},
    {RDMA_NLDEV_ATTR_DEV_NAME, Kind::kText},
    {RDMA_NLDEV_ATTR_PORT_INDEX, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_LQPN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_PDN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_CQN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_MRN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_CM_IDN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_CTXN, Kind::kU32},
    {RDMA_NLDEV_ATTR_RES_SRQN, Kind::kU32},
    {RDMA_NLDEV_ATTR_NDEV_NAME, Kind::kText},
    {RDMA_NLDEV_ATTR_LINK_TYPE, Kind::kText},
    {RDMA_NLDEV_SYS_ATTR_NETNS_MODE, Kind::kU8},
    {RDMA_NLDEV_NET_NS_FD, Kind::kU32},
    {RDMA_NLDEV_ATTR_STAT_MODE, Kind::kU32},
    {RDMA_NLDEV_ATTR_STAT_RES, Kind::kU32},
    {RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, Kind::kU32},
    {RDMA_NLDEV_ATTR_STAT_COUNTER_ID, Kind::kU32},
    {RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, Kind::kNest},
    {RDMA_NLDEV_ATTR_DEV_DIM, Kind::kU8},
});

bool fits(uint16_t type, std::span<const std::byte> value) {
  const auto* const rule = std::ranges::find(kRules, type, &Rule::type);
  if (rule == kRules.end()) return true;
  switch (rule->kind) {
    case Kind::kU8:
      return value.size() == sizeof(uint8_t);
    case Kind::kU32:
      return value.size() == sizeof(uint32_t);
    case Kind::kText:
      return std::ranges::find(value, std::byte{0}) != value.end();
    case Kind::kNest:
      return true;
  }
  return false;
}

template <class Number>
std::optional<Number> number_of(std::span<const std::byte> value) {
  if (value.size() != sizeof(Number)) return std::nullopt;
  Number number;
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

}  // namespace

Result<Request> Request::parse(const Header& header, std::span<const std::byte> payload) {
  Request request;
  request.header_ = header;
  // A rest that is too short for another attribute is padding.
  while (payload.size() >= sizeof(nlattr)) {
    nlattr attribute;
    std::memcpy(&attribute, payload.data(), sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || attribute.nla_len > payload.size()) return fail(EINVAL);
    const auto value = payload.subspan(NLA_HDRLEN, attribute.nla_len - NLA_HDRLEN);
    const auto type = static_cast<uint16_t>(attribute.nla_type & NLA_TYPE_MASK);
    if (type < request.attributes_.size()) {
      if (!fits(type, value)) return fail(EINVAL);
      request.attributes_[type] = value;
    }
    payload = payload.subspan(std::min<size_t>(NLA_ALIGN(attribute.nla_len), payload.size()));
  }
  return request;
}

std::optional<uint32_t> Request::u32(rdma_nldev_attr type) const {
  return number_of<uint32_t>(attributes_[type]);
}

std::optional<uint8_t> Request::u8(rdma_nldev_attr type) const {
  return number_of<uint8_t>(attributes_[type]);
}

std::optional<std::string> Request::text(rdma_nldev_attr type) const {
  if (!has(type)) return std::nullopt;
  const auto* const start = reinterpret_cast<const char*>(attributes_[type].data());
  return std::string(start, ::strnlen(start, attributes_[type].size()));
}

}  // namespace verbena::rdma_netlink
