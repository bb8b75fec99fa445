// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

// What a process lets `verbena status` see of its QPs: a sparse memfd per slot, made by the agent, mapped and
// written by the process, only read by the agent. Plain numbers; a reader trusts none of them. All stores and
// loads are relaxed atomics.
using SharedNumber = std::atomic<uint64_t>;
static_assert(SharedNumber::is_always_lock_free && sizeof(SharedNumber) == 8);

inline constexpr size_t kQpNumbers = 25;         // transport::QpCounter
inline constexpr size_t kQpsPerSlot = 1u << 14;  // roce::Qpn::kPerSlot

struct alignas(64) QpStatus {
  SharedNumber in_use;  // 0: no QP here
  SharedNumber qpn;
  SharedNumber type;   // enum ibv_qp_type
  SharedNumber state;  // enum ibv_qp_state
  SharedNumber remote_qpn;
  SharedNumber device_index;                      // Link::device_index
  std::array<SharedNumber, kQpNumbers> counters;  // transport::QpCounters
  SharedNumber by_memory;                         // 1: its packets do not leave the host's memory
};
static_assert(sizeof(QpStatus) == 256);

inline constexpr size_t kPathNumbers = 8;  // transport::PathNumber

struct alignas(64) PathStatus {
  std::array<SharedNumber, kPathNumbers> numbers;  // transport::PathNumbers
};
static_assert(sizeof(PathStatus) == 64);

enum PortCounter : uint8_t {
  kPortSentPackets,
  kPortSentBytes,
  kPortReceivedPackets,
  kPortReceivedBytes,
  kPortSendErrors,
  kPortFirstDropReason,  // net::DropReason follows, one number each
};

inline constexpr size_t kPortNumbers = 63;

struct StatusPage {
  static constexpr uint64_t kMagic = 0x7665726265'6e6102;  // "verben", "a", layout 2
  SharedNumber magic;
  std::array<SharedNumber, kPortNumbers> port;  // by PortCounter
  std::array<QpStatus, kQpsPerSlot> qps;        // by Qpn::index(); pages come into being when touched
  std::array<PathStatus, kQpsPerSlot> paths;    // likewise
};
// The page of an agent from before there were paths ends here. Its processes show none.
inline constexpr size_t kStatusBytesWithoutPaths = offsetof(StatusPage, paths);
static_assert(kStatusBytesWithoutPaths == 512 + kQpsPerSlot * sizeof(QpStatus));
static_assert(sizeof(StatusPage) == kStatusBytesWithoutPaths + kQpsPerSlot * sizeof(PathStatus));

}  // namespace verbena::protocol
