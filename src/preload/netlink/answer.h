// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/netlink/attributes.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

// The maximum size of a datagram: somewhat less than the buffers of libmnl's readers (MNL_SOCKET_BUFFER_SIZE,
// one page).
inline constexpr size_t kDatagramBytes = 3584;

// Builds the response to one request: datagrams of one message each. Not thread-safe.
class Answer {
 public:
  // `port`: the port of the program's socket, which each message contains.
  Answer(const Request::Header& request, uint32_t port) : request_(request), port_(port) {}

  void message(const Attributes& attributes, bool is_part);
  // Adds messages that consist of `owner` and a table with as many entries as fit. Adds none if there are no
  // entries.
  void table(const Attributes& owner, uint16_t type, const std::vector<Attributes>& entries);
  // Adds the end of a dump.
  void done();
  // Adds an acknowledgement. `error`: 0 for success. `why`: a reason for the user (NETLINK_EXT_ACK); may be
  // empty.
  void acknowledge(int error, std::string_view why);

  std::vector<Bytes> take() { return std::move(datagrams_); }

 private:
  void add(uint16_t type, uint16_t flags, const Bytes& payload);

  const Request::Header request_;
  const uint32_t port_;
  std::vector<Bytes> datagrams_;
};

}  // namespace verbena::rdma_netlink
