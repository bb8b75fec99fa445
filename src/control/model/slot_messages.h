// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::control {

// A message from the agent: this process's end of a channel between one of its slots and another slot.
struct SlotChannel {
  uint32_t own_slot = 0;
  uint32_t peer_slot = 0;  // may also be a slot of this process
  bool asked = false;      // true if this process requested the channel, false if the other one did
  int error = 0;           // an errno value if there is no channel; see protocol::ChannelMessage
  UniqueFd socket;         // SOCK_SEQPACKET, non-blocking
  uid_t peer_user = 0;     // the user of the other slot's process, as the agent sees it; 0 from old agents

  // Returns whether the lease of the other slot has ended.
  bool is_end_of_lease() const { return error == ESTALE && !asked; }
};

// A message from the agent: the connection to another process that has an XRC domain of this process open, or
// the end of the lease of that process's slot.
struct DomainPeer {
  uint64_t domain = 0;    // this process's number for the domain
  uint32_t slot = 0;      // of the other process
  bool asked = false;     // true if this process requested the connection, false if the other one did
  int error = 0;          // 0, or an errno value: ENOENT if no process at `slot` has the domain open
  UniqueFd socket;        // SOCK_SEQPACKET
  uint32_t own_slot = 0;  // at the end of a lease: the slot of this process that may have a connection

  // Returns whether the lease of the slot has ended: connections to its process, in all domains, end, too.
  bool is_end_of_lease() const { return error == ESTALE && !asked; }
};

// A message from the agent that starts or stops the capture of a slot. With a ring, the process copies the
// packets that the slot sends by shared memory to the ring; without a ring, the process stops.
struct SlotCapture {
  static constexpr uint32_t kAllSlots = UINT32_MAX;
  uint32_t slot = kAllSlots;
  UniqueFd ring;  // see observe/capture/ring_file.h
};

}  // namespace verbena::control
