// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/netlink/attributes.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

// As large as libmnl's readers take one (MNL_SOCKET_BUFFER_SIZE, which is a page), with room to spare.
inline constexpr size_t kDatagramBytes = 3584;

// What is sent to a program for one request: datagrams of one message each. Not thread-safe.
class Answer {
 public:
  // `port`: the program's socket, which is named in each message.
  Answer(const Request::Header& request, uint32_t port) : request_(request), port_(port) {}

  void message(const Attributes& attributes, bool is_part);
  // Messages with `owner` and a table of as many entries as fit; none if there are none.
  void table(const Attributes& owner, uint16_t type, const std::vector<Attributes>& entries);
  // The end of a dump.
  void done();
  // `error`: 0 if it was carried out. `why`: for the user (NETLINK_EXT_ACK); may be empty.
  void acknowledge(int error, std::string_view why);

  std::vector<Bytes> take() { return std::move(datagrams_); }

 private:
  void add(uint16_t type, uint16_t flags, const Bytes& payload);

  const Request::Header request_;
  const uint32_t port_;
  std::vector<Bytes> datagrams_;
};

}  // namespace verbena::rdma_netlink
