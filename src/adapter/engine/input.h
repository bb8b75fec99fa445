// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bell.h"
#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// A source of packets for a shard beside its port: the socket of a multicast group, of a raw QP. The thread
// that drives the shard asks it after the port, and the engine thread hears its descriptor by the same rule
// as the port's. Added and removed inside Shard::exclusively(); all calls come with the shard's lock held.
//
// It hands packets to QPs itself: those of RoCE by Shard::deliver(); after any other change to a QP it calls
// Shard::touched().
class Input {
 public:
  virtual ~Input() = default;

  // Readable when receive() would find something. The same for as long as the shard has the input.
  virtual int fd() const = 0;

  // Takes what has arrived, at most about `budget` packets. Never blocks. Returns how many packets were read,
  // bad ones included: 0 means that nothing was there.
  virtual uint32_t receive(uint32_t budget, TimePoint now) = 0;

  // Whether receive() costs no system call: what it brings is told apart from what ports bring.
  virtual bool is_memory() const { return false; }
  // The engine thread has come, perhaps woken by the descriptor.
  virtual void on_woken() {}
  // From now on the descriptor is heard, or not: who fills the input need not make it readable while it is
  // not. True: something is there already.
  virtual bool listen(bool on) {
    (void)on;
    return false;
  }

  // Rings when there is something, if it is listened for; fd() need not be readable then. A thread of the
  // application may sleep there. nullptr: fd() tells of everything. The same for as long as the shard has the
  // input, of which one at most has a bell.
  virtual const Bell* bell() const { return nullptr; }

  // Whether the descriptors that it reads are still its own (base/own_fd.h).
  virtual bool is_whole() const { return true; }

  // In a child after fork(): closes its descriptors, so that what they stand for ends with the parent.
  virtual void abandon() = 0;

  ListHook input_hook;
};

}  // namespace verbena::engine
