// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>

#include "agent/sessions/raw_connection.h"
#include "base/unique_fd.h"
#include "control/client/client.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"
#include "control/protocol/status_page.h"
#include "wire/roce/qpn.h"

// What a program may do to root's agent to have all that there is. Each takes as much as it is given, which
// it has for as long as `kept` is there.
namespace verbena::test {

using KeptConnections = std::vector<std::unique_ptr<RawConnection>>;

inline RawConnection& connect_to_root(KeptConnections& kept) {
  return *kept.emplace_back(std::make_unique<RawConnection>(uid_t{0}));
}

// Slots, by one connection, until the agent gives no more. How many it were; less than 0: where it failed.
inline int take_all_slots(KeptConnections& kept) {
  RawConnection& connection = connect_to_root(kept);
  if (!connection.hello()) return -1;
  for (int slots = 0;; ++slots) {
    const auto request = protocol::request_header(protocol::MessageType::kTakeSlot, 3);
    if (!connection.send(protocol::bytes_of(request))) return -2;
    const auto error = connection.reply();
    if (!error) return -3;
    if (*error != 0) return *error == ENOSPC ? slots : -4;
  }
}

// Connections that say hello and no more, until the agent hangs up on a new one. How many it were.
inline size_t take_all_connections(KeptConnections& kept, size_t most = std::numeric_limits<size_t>::max()) {
  while (kept.size() < most) {
    RawConnection& connection = connect_to_root(kept);
    if (!connection.connected() || !connection.hello()) return kept.size() - 1;
  }
  return kept.size();
}

// Requests whose answers bring a descriptor, and that nobody reads. False: there was not even one connection.
inline bool read_nothing(KeptConnections& kept) {
  for (int i = 0; i < 60; ++i) {
    RawConnection& connection = connect_to_root(kept);
    if (!connection.hello()) return i > 0;
    const auto request = protocol::request_header(protocol::MessageType::kGetLinks, 9);
    for (int k = 0; k < 200 && connection.send(protocol::bytes_of(request)); ++k) {
    }
  }
  return true;
}

// Event channels, by one connection, until there are no more. 0, or where it failed.
inline int take_all_channels(KeptConnections& kept) {
  RawConnection& connection = connect_to_root(kept);
  int ends[2];
  if (!connection.hello() || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  const UniqueFd agents(ends[0]);
  const UniqueFd own(ends[1]);
  const int channel = agents.get();
  protocol::CmChannelRequest request{};
  request.header = protocol::request_header(protocol::MessageType::kCmOpenChannel, 2);
  for (int error = 0; error == 0;) {
    ++request.channel;
    if (!connection.send(protocol::bytes_of(request), {&channel, 1})) return 2;
    error = connection.reply().value_or(EMFILE);
    if (error != 0 && error != EMFILE) return 3;
  }
  return 0;
}

// Publishes as many QPs as a slot can have; change(qp) may say what else is in each.
template <class Change>
bool fill_status_page(const control::Slot& slot, Change change) {
  void* const memory = ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                              slot.status_page.get(), 0);
  if (memory == MAP_FAILED) return false;
  auto* const page = static_cast<protocol::StatusPage*>(memory);
  page->magic = protocol::StatusPage::kMagic;
  for (uint32_t place = 0; place < protocol::kQpsPerSlot; ++place) {
    page->qps[place].in_use = 1;
    page->qps[place].qpn = roce::Qpn::in_slot(slot.index, place).value();
    change(page->qps[place]);
  }
  ::munmap(memory, sizeof(protocol::StatusPage));
  return true;
}

}  // namespace verbena::test
