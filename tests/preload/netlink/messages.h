// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <linux/netlink.h>

#include "preload/netlink/message.h"

namespace verbena::rdma_netlink {

// A decoded netlink attribute.
struct Seen {
  uint16_t type;
  std::span<const std::byte> value;

  template <class Number>
  Number number() const {
    if (value.size() != sizeof(Number)) throw std::runtime_error("a number of another size");
    Number number;
    std::memcpy(&number, value.data(), sizeof number);
    return number;
  }
  std::string text() const { return reinterpret_cast<const char*>(value.data()); }
};

// Decodes attributes independently of the code under test. Throws if lengths are inconsistent.
inline std::vector<Seen> read_attributes(std::span<const std::byte> bytes) {
  std::vector<Seen> seen;
  while (!bytes.empty()) {
    nlattr header;
    if (bytes.size() < sizeof header) throw std::runtime_error("an attribute without a header");
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t whole = NLA_ALIGN(header.nla_len);
    if (header.nla_len < sizeof header || whole > bytes.size())
      throw std::runtime_error("a length beyond the end");
    seen.push_back({header.nla_type, bytes.subspan(sizeof header, header.nla_len - sizeof header)});
    bytes = bytes.subspan(whole);
  }
  return seen;
}

struct Message {
  nlmsghdr header;
  std::span<const std::byte> payload;

  std::vector<Seen> attributes() const { return read_attributes(payload); }
  int error() const {
    nlmsgerr error;
    if (header.nlmsg_type != NLMSG_ERROR || payload.size() < sizeof error)
      throw std::runtime_error("no NLMSG_ERROR");
    std::memcpy(&error, payload.data(), sizeof error);
    return -error.error;
  }
};

inline Message read_message(std::span<const std::byte> datagram) {
  Message message{};
  if (datagram.size() < sizeof message.header) throw std::runtime_error("a message without a header");
  std::memcpy(&message.header, datagram.data(), sizeof message.header);
  if (message.header.nlmsg_len != datagram.size()) throw std::runtime_error("more or less than one message");
  message.payload = datagram.subspan(sizeof message.header);
  return message;
}

inline Bytes make_message(uint16_t type, uint16_t flags, const Bytes& payload, uint32_t sequence = 7) {
  const nlmsghdr header{.nlmsg_len = static_cast<uint32_t>(sizeof(nlmsghdr) + payload.size()),
                        .nlmsg_type = type,
                        .nlmsg_flags = flags,
                        .nlmsg_seq = sequence,
                        .nlmsg_pid = 0};
  Bytes bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace verbena::rdma_netlink
