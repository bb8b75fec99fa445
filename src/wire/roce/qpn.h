// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace verbena::roce {

// A queue pair number: 24 bits. The top kSlotBits are the slot: a range of QPNs that belongs to one process
// (docs/architecture.md). The other bits are the QP's index within the slot. Slot 0 is the agent's own.
class Qpn {
 public:
  static constexpr uint32_t kMask = 0xffffff;
  static constexpr unsigned kSlotBits = 10;
  static constexpr unsigned kIndexBits = 24 - kSlotBits;
  static constexpr uint32_t kSlots = 1u << kSlotBits;
  static constexpr uint32_t kPerSlot = 1u << kIndexBits;

  constexpr Qpn() = default;
  constexpr explicit Qpn(uint32_t value) : value_(value & kMask) {}
  static constexpr Qpn in_slot(uint32_t slot, uint32_t index) { return Qpn(slot << kIndexBits | index); }

  constexpr uint32_t value() const { return value_; }
  constexpr uint32_t slot() const { return value_ >> kIndexBits; }
  constexpr uint32_t index() const { return value_ & (kPerSlot - 1); }

  friend constexpr auto operator<=>(Qpn, Qpn) = default;

 private:
  uint32_t value_ = 0;
};

// The destination QPN of multicast datagrams. Every QP that is attached to the group receives them (IBTA
// volume 1, 10.5.2).
inline constexpr Qpn kMulticastQpn{0xffffff};

}  // namespace verbena::roce
