// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#include "control/protocol/slot_secret.h"
#include "control/protocol/trace_ring.h"

namespace verbena::protocol {

// What a process lets `verbena status` see of its QPs: a sparse memfd per slot, made by the agent, mapped and
// written by the process, only read by the agent. Plain numbers; a reader trusts none of them. All stores and
// loads are relaxed atomics, but those of traces.

// By what a QP's packets go to its peer, and, where that is memory, whether requests can be carried out in
// the peer's own (docs/one-host.md). Processes of older versions say no more than 0 or 1.
enum class QpWay : uint8_t {
  kWire,
  kMemory,      // of the peer's memory nothing is known, or not yet
  kAllReached,  // requests are carried out there
  kOnlyShared,  // only in what is shared already: the kernel forbids the rest
  kForbidden,   // the kernel does not let us see the process
  kOtherUser,   // another user's process, or one that cannot be seen from here
  kNotUsable,   // what it shows of itself is not
};
inline constexpr size_t kQpWays = 7;

inline constexpr size_t kQpNumbers = 25;         // transport::QpCounter, up to its kFirstMoreCounter
inline constexpr size_t kQpMoreNumbers = 8;      // and those from there on
inline constexpr size_t kQpsPerSlot = 1u << 14;  // roce::Qpn::kPerSlot

struct alignas(64) QpStatus {
  SharedNumber in_use;  // 0: no QP here
  SharedNumber qpn;
  SharedNumber type;   // enum ibv_qp_type
  SharedNumber state;  // enum ibv_qp_state
  SharedNumber remote_qpn;
  SharedNumber device_index;                      // Link::device_index
  std::array<SharedNumber, kQpNumbers> counters;  // transport::QpCounters
  SharedNumber way;                               // QpWay
};
static_assert(sizeof(QpStatus) == 256);

inline constexpr size_t kPathNumbers = 8;  // transport::PathNumber

struct alignas(64) PathStatus {
  std::array<SharedNumber, kPathNumbers> numbers;  // transport::PathNumbers
};
static_assert(sizeof(PathStatus) == 64);

// What else there is to know of a QP.
enum QpDetail : uint8_t {
  kQpPd,               // number_of() its protection domain; 0: none, or not listed
  kQpSharedReceives,   // likewise of its shared receive queue
  kQpPort,             // 0: it has none yet
  kQpMigration,        // enum ibv_mig_state
  kQpSendPsn,          // this and what follows as it was a moment ago
  kQpReceivePsn,       // of responders more: control/protocol/responder_progress.h
  kQpWaitingSends,     // posted, and not complete
  kQpWaitingReceives,  // in its own queue
  kQpDetailCount,
};

struct alignas(64) QpDetails {
  std::array<SharedNumber, kQpDetailCount> numbers;
};
static_assert(sizeof(QpDetails) == 64);

// More counters of a QP.
struct alignas(64) QpMore {
  std::array<SharedNumber, kQpMoreNumbers> numbers;  // transport::QpMoreCounters
};
static_assert(sizeof(QpMore) == 64);

// The other objects of a process, as the kernel's restrack knows them.
enum class ObjectKind : uint8_t { kNone, kContext, kPd, kCq, kMr, kSrq, kCount };

// What an object's values say.
enum ContextValue : uint8_t { kContextNone };
enum PdValue : uint8_t { kPdContext, kPdUsers };
enum CqValue : uint8_t { kCqContext, kCqUsers, kCqEntries, kCqOverrun };  // 1: an entry did not fit
enum MrValue : uint8_t { kMrPd, kMrLocalKey, kMrRemoteKey, kMrLength, kMrAddress };
enum SrqValue : uint8_t { kSrqPd, kSrqCq, kSrqType, kSrqNumber };  // enum ibv_srq_type
inline constexpr size_t kObjectValues = 6;

struct alignas(64) ObjectStatus {
  SharedNumber kind;  // ObjectKind; kNone while there is none, or it is not written whole yet
  SharedNumber device_index;
  std::array<SharedNumber, kObjectValues> values;
};
static_assert(sizeof(ObjectStatus) == 64);

// As many are listed; all are counted.
inline constexpr size_t kObjectsPerSlot = 1u << 16;

struct alignas(64) ObjectCounts {
  std::array<SharedNumber, static_cast<size_t>(ObjectKind::kCount)> of_kind;
  SharedNumber places;  // how many of the list have ever been used
  SharedNumber reserved;
};
static_assert(sizeof(ObjectCounts) == 64);

// The number of the object at a place of a slot's list: no other object of the host has it, and it is not 0.
constexpr uint32_t number_of(uint32_t slot, uint32_t place) {
  return slot * static_cast<uint32_t>(kObjectsPerSlot) + place + 1;
}

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
  std::array<QpDetails, kQpsPerSlot> details;   // likewise
  ObjectCounts object_counts;                   // all objects of a process are in one of its pages
  std::array<ObjectStatus, kObjectsPerSlot> objects;
  TraceRings traces;                     // of the slot's QPs
  std::array<QpMore, kQpsPerSlot> more;  // by Qpn::index()
  alignas(64) SlotSecret secret;         // written by the agent when it lends the slot
};
// The page of an agent from before there were paths ends here. Its processes show none.
inline constexpr size_t kStatusBytesWithoutPaths = offsetof(StatusPage, paths);
static_assert(kStatusBytesWithoutPaths == 512 + kQpsPerSlot * sizeof(QpStatus));
// That of one from before objects were listed ends here.
inline constexpr size_t kStatusBytesWithoutObjects = offsetof(StatusPage, details);
static_assert(kStatusBytesWithoutObjects == kStatusBytesWithoutPaths + kQpsPerSlot * sizeof(PathStatus));
// That of one from before there were traces ends here.
inline constexpr size_t kStatusBytesWithoutTraces = offsetof(StatusPage, traces);
static_assert(kStatusBytesWithoutTraces == kStatusBytesWithoutObjects + kQpsPerSlot * sizeof(QpDetails) +
                                               sizeof(ObjectCounts) + kObjectsPerSlot * sizeof(ObjectStatus));
// That of one from before octets were counted ends here.
inline constexpr size_t kStatusBytesWithoutMore = offsetof(StatusPage, more);
static_assert(kStatusBytesWithoutMore == kStatusBytesWithoutTraces + sizeof(TraceRings));
// That of one from before there were secrets ends here.
inline constexpr size_t kStatusBytesWithoutSecret = offsetof(StatusPage, secret);
static_assert(kStatusBytesWithoutSecret == kStatusBytesWithoutMore + kQpsPerSlot * sizeof(QpMore));
static_assert(sizeof(StatusPage) == kStatusBytesWithoutSecret + 64);

// Not set: it cannot be read, or is of an older agent.
inline SlotSecret secret_in(int page) {
  SlotSecret secret{};
  const auto at = static_cast<off_t>(offsetof(StatusPage, secret));
  return ::pread(page, secret.data(), sizeof secret, at) == sizeof secret ? secret : SlotSecret{};
}

}  // namespace verbena::protocol
