// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

using Bytes = std::vector<std::byte>;

// Builds the attributes of a netlink message: each has a length, a type, a value, and padding to four bytes.
// Not thread-safe.
class Attributes {
 public:
  Attributes& put_u8(uint16_t type, uint8_t value) { return put_value(type, value); }
  Attributes& put_u32(uint16_t type, uint32_t value) { return put_value(type, value); }
  Attributes& put_u64(uint16_t type, uint64_t value) { return put_value(type, value); }
  // Adds a string with its terminating zero.
  Attributes& put_text(uint16_t type, std::string_view text);
  // Adds an attribute whose value is the attributes `inner`. Omits NLA_F_NESTED, which this protocol does not
  // use.
  Attributes& put_nest(uint16_t type, const Attributes& inner) { return put(type, inner.bytes_); }
  // Adds an attribute with any value. REQUIRES: the attribute's length fits in 16 bits
  Attributes& put(uint16_t type, std::span<const std::byte> value);

  const Bytes& bytes() const { return bytes_; }
  // Appends the attributes of `other`.
  void append(const Attributes& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
  }

 private:
  template <class Value>
  Attributes& put_value(uint16_t type, const Value& value) {
    return put(type, std::as_bytes(std::span<const Value, 1>(&value, 1)));
  }

  Bytes bytes_;
};

// Adds the process that owns an object to the object's attributes. The reader finds the process's name by its
// PID (/proc/PID/comm). If the agent does not see the process (PID 0), adds the program's name instead.
inline void put_process(Attributes& entry, int pid, std::string_view program) {
  if (pid != 0) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
  } else {
    entry.put_text(RDMA_NLDEV_ATTR_RES_KERN_NAME, program);
  }
}

// The size, in bytes, beyond which table() begins another datagram: somewhat less than the buffers of
// libmnl's readers (MNL_SOCKET_BUFFER_SIZE, one page).
inline constexpr size_t kDatagramBytes = 3584;

// Builds the response to one request: datagrams of one message each. Not thread-safe.
class Answer {
 public:
  // `port` is the netlink port of the program's socket, which each message contains.
  Answer(const Request::Header& request, uint32_t port) : request_(request), port_(port) {}

  // Adds a message of the request's type. `is_part`: the message is a part of a dump (NLM_F_MULTI).
  void message(const Attributes& attributes, bool is_part) {
    add(request_.type, is_part ? NLM_F_MULTI : 0, attributes.bytes());
  }
  // Adds messages that together list all `entries`. Each message has the attributes `owner` and one nested
  // attribute of type `type`, with as many entries as fit in kDatagramBytes. Adds no message if there are no
  // entries.
  void table(const Attributes& owner, uint16_t type, const std::vector<Attributes>& entries);
  // Adds the end of a dump.
  void done();
  // Adds an acknowledgement. `error` is 0 for success, or an errno value. `why` is a reason for the user
  // (NETLINK_EXT_ACK), and may be empty.
  void acknowledge(int error, std::string_view why);

  // Returns the datagrams in the order of sending, and forgets them.
  std::vector<Bytes> take() { return std::move(datagrams_); }

 private:
  void add(uint16_t type, uint16_t flags, const Bytes& payload);

  const Request::Header request_;
  const uint32_t port_;
  std::vector<Bytes> datagrams_;
};

}  // namespace verbena::rdma_netlink
