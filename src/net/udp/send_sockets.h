// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "roce/qpn.h"

namespace verbena::net {

// A socket that packets leave from.
struct SendSocket {
  UniqueFd fd;
  uint16_t port = 0;  // its source port, which the ICRC covers
};

// The sockets that packets leave from: one per address family and destination slot, made at first use.
//
// A receiving kernel's GRO merges packets of one 4-tuple and steers the merged whole by its first packet, so
// packets for different slots need different source ports. They are unconnected, which with "don't fragment"
// makes the kernel write identification 0 (and k into the k-th segment of a super-packet). One thread at a
// time.
class SendSockets {
 public:
  explicit SendSockets(uint32_t send_buffer_bytes) : send_buffer_bytes_(send_buffer_bytes) {}

  // When no more sockets can be had (descriptor limit), any other of the family serves: what GRO then merges
  // wrongly is lost at the receiver and sent again. Null: there is none of this family at all.
  const SendSocket* get(bool ipv6, uint32_t slot) {
    const auto& known = by_slot_[ipv6][slot];
    return known ? known.get() : make(ipv6, slot);
  }

 private:
  const SendSocket* make(bool ipv6, uint32_t slot);
  Result<SendSocket> open(bool ipv6) const;

  uint32_t send_buffer_bytes_;
  std::array<std::array<std::unique_ptr<SendSocket>, roce::Qpn::kSlots>, 2> by_slot_;
  std::array<const SendSocket*, 2> any_{};
};

}  // namespace verbena::net
