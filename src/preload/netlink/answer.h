// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/netlink/attributes.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

// The size, in bytes, beyond which table() begins another datagram: somewhat less than the buffers of
// libmnl's readers (MNL_SOCKET_BUFFER_SIZE, one page).
inline constexpr size_t kDatagramBytes = 3584;

// Builds the response to one request: datagrams of one message each. Not thread-safe.
class Answer {
 public:
  // `port` is the netlink port of the program's socket, which each message contains.
  Answer(const Request::Header& request, uint32_t port) : request_(request), port_(port) {}

  // Adds a message of the request's type. `is_part`: the message is a part of a dump (NLM_F_MULTI).
  void message(const Attributes& attributes, bool is_part);
  // Adds messages that consist of `owner` and an attribute `type` with as many of the entries as fit. Adds no
  // message if there are no entries.
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
