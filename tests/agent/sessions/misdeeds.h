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

// Attacks by a program on root's agent: each takes all of one resource that it can get, and keeps it until
// `kept` is destroyed.
namespace verbena::test {

using KeptConnections = std::vector<std::unique_ptr<RawConnection>>;

inline RawConnection& connect_to_root(KeptConnections& kept) {
  return *kept.emplace_back(std::make_unique<RawConnection>(uid_t{0}));
}

// Takes slots on one connection until the agent refuses. Returns their number, or a negative number that
// tells the failed step.
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

// Opens connections that only say hello, until the agent hangs up on a new one. Returns their number.
inline size_t take_all_connections(KeptConnections& kept, size_t most = std::numeric_limits<size_t>::max()) {
  while (kept.size() < most) {
    RawConnection& connection = connect_to_root(kept);
    if (!connection.connected() || !connection.hello()) return kept.size() - 1;
  }
  return kept.size();
}

// Sends requests whose replies carry a descriptor, and reads no reply. False if not even one connection
// succeeded.
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

// Opens event channels on one connection until the agent refuses. Returns 0, or the number of the failed
// step.
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

// Publishes the maximum number of QPs of a slot. change(qp) may set further members of each.
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
