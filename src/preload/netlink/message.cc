// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/message.h"

#include <algorithm>
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

namespace {

// The maximum length of a reason, which is a sentence. A longer text would not fit a reader's buffer.
constexpr size_t kLongestReason = 512;

template <class Struct>
Bytes bytes_of(const Struct& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace

void Answer::add(uint16_t type, uint16_t flags, const Bytes& payload) {
  const nlmsghdr header{.nlmsg_len = static_cast<uint32_t>(NLMSG_HDRLEN + payload.size()),
                        .nlmsg_type = type,
                        .nlmsg_flags = flags,
                        .nlmsg_seq = request_.sequence,
                        .nlmsg_pid = port_};
  Bytes datagram = bytes_of(header);
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  datagrams_.push_back(std::move(datagram));
}

void Answer::table(const Attributes& owner, uint16_t type, const std::vector<Attributes>& entries) {
  const auto send = [&](const Attributes& part) {
    Attributes all = owner;
    message(all.put_nest(type, part), true);
  };
  Attributes part;
  for (const Attributes& entry : entries) {
    const size_t size = owner.bytes().size() + part.bytes().size() + entry.bytes().size();
    if (!part.bytes().empty() && size > kDatagramBytes) {
      send(part);
      part = {};
    }
    part.append(entry);
  }
  if (!part.bytes().empty()) send(part);
}

void Answer::done() {
  add(NLMSG_DONE, NLM_F_MULTI, bytes_of(int{0}));
}

void Answer::acknowledge(int error, std::string_view why) {
  // The request's header without its payload (NLM_F_CAPPED), which the sender knows.
  const nlmsghdr header{.nlmsg_len = NLMSG_HDRLEN,
                        .nlmsg_type = request_.type,
                        .nlmsg_flags = request_.flags,
                        .nlmsg_seq = request_.sequence,
                        .nlmsg_pid = port_};
  Bytes payload = bytes_of(nlmsgerr{.error = -error, .msg = header});
  uint16_t flags = NLM_F_CAPPED;
  if (!why.empty()) {
    Attributes reason;
    reason.put_text(NLMSGERR_ATTR_MSG, why.substr(0, kLongestReason));
    payload.insert(payload.end(), reason.bytes().begin(), reason.bytes().end());
    flags |= NLM_F_ACK_TLVS;
  }
  add(NLMSG_ERROR, flags, payload);
}

}  // namespace verbena::rdma_netlink
