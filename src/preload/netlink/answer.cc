// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/answer.h"

#include <cstring>

#include <linux/netlink.h>

namespace verbena::rdma_netlink {
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

void Answer::message(const Attributes& attributes, bool is_part) {
  add(request_.type, is_part ? NLM_F_MULTI : 0, attributes.bytes());
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
