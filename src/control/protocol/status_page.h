// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#include "control/protocol/messages.h"
#include "control/protocol/trace_ring.h"

namespace verbena::protocol {

// The progress of a QP's responder, encoded in one number of the status page (kQpReceivePsn). The agent reads
// this number to answer the peers of a stopped process. All requests before `expected` are executed. An RNR
// NAK acknowledges the requests before its PSN. So one for `expected` or an earlier PSN acknowledges only
// executed requests.
struct ResponderProgress {
  uint32_t expected = 0;  // PSN; 24 bits
  uint32_t msn = 0;       // 24 bits
  uint8_t rnr_retry = 0;  // rnr_retry of the QP's own requester; programs set the same value at both ends
  bool is_exact = false;  // true if stored before each acknowledgement, false if it may lag by a moment
};

constexpr uint64_t encode(const ResponderProgress& progress) {
  return uint64_t{progress.expected & 0xffffff} | uint64_t{progress.msn & 0xffffff} << 32 |
         uint64_t{progress.rnr_retry & 7u} << 56 | uint64_t{progress.is_exact} << 63;
}

constexpr ResponderProgress decode_responder_progress(uint64_t number) {
  return {.expected = static_cast<uint32_t>(number & 0xffffff),
          .msn = static_cast<uint32_t>(number >> 32 & 0xffffff),
          .rnr_retry = static_cast<uint8_t>(number >> 56 & 7),
          .is_exact = (number >> 63) != 0};
}

// The status page, in which a process publishes the state of its QPs for `verbena status`. Each slot has a
// page, a sparse memfd. The agent creates the page and writes the secret; the process maps the page and
// writes the rest. Readers do not trust the numbers in a page. The process accesses the numbers by relaxed
// atomics, except those of traces and the secret.

// The route of a QP. For shared memory, also says whether this process executes its requests directly in the
// peer's memory (docs/one-host.md). Processes of older versions store only 0 or 1.
enum class QpWay : uint8_t {
  kWire,
  kMemory,      // shared memory; unknown whether direct access works
  kAllReached,  // requests are executed in the peer's memory
  kOnlyShared,  // requests are executed directly only in memory that both processes share anyway
  kForbidden,   // no direct access: the kernel denies access to the peer's process
  kOtherUser,   // no direct access: another user's process, or in another pid namespace
  kNotUsable,   // no direct access: the peer's export table (list of its keys) is invalid
};
inline constexpr size_t kQpWays = 7;

inline constexpr size_t kQpNumbers = 25;         // transport::QpCounter, up to its kFirstMoreCounter
inline constexpr size_t kQpMoreNumbers = 8;      // the counters from kFirstMoreCounter on
inline constexpr size_t kQpsPerSlot = 1u << 14;  // roce::Qpn::kPerSlot

// The main entry of a QP.
struct alignas(64) QpStatus {
  SharedNumber in_use;  // 0 if there is no QP
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

// The state of a QP's path to its peer, such as the round-trip time; zeros without a path.
struct alignas(64) PathStatus {
  std::array<SharedNumber, kPathNumbers> numbers;  // transport::PathNumbers
};
static_assert(sizeof(PathStatus) == 64);

// Further attributes of a QP: indexes of QpDetails::numbers.
enum QpDetail : uint8_t {
  kQpPd,               // number_of() the QP's protection domain; 0 if there is none or it is not listed
  kQpSharedReceives,   // number_of() the QP's shared receive queue; 0 if there is none or it is not listed
  kQpPort,             // 0 if not set yet
  kQpMigration,        // enum ibv_mig_state
  kQpSendPsn,          // next PSN to send; this number and the following ones may lag by a moment
  kQpReceivePsn,       // for responders: ResponderProgress
  kQpWaitingSends,     // posted and not completed
  kQpWaitingReceives,  // in the QP's own receive queue
  kQpDetailCount,
};

struct alignas(64) QpDetails {
  std::array<SharedNumber, kQpDetailCount> numbers;
};
static_assert(sizeof(QpDetails) == 64);

// Further counters of a QP, from transport::kFirstMoreCounter on.
struct alignas(64) QpMore {
  std::array<SharedNumber, kQpMoreNumbers> numbers;  // transport::QpMoreCounters
};
static_assert(sizeof(QpMore) == 64);

// The kinds of objects, other than QPs, that a process lists. The kernel's restrack has these kinds, too, but
// numbers them differently.
enum class ObjectKind : uint8_t { kNone, kContext, kPd, kCq, kMr, kSrq, kCount };

// Indexes of ObjectStatus::values, by kind. A value that names another object (kPdContext, kMrPd, kSrqCq ...)
// is the number_of() that object. The value is 0 if there is no such object or the list has no room for it.
// kPdUsers, kCqUsers: number of objects that use this object.
enum ContextValue : uint8_t { kContextNone };
enum PdValue : uint8_t { kPdContext, kPdUsers };
enum CqValue : uint8_t { kCqContext, kCqUsers, kCqEntries, kCqOverrun };  // kCqOverrun: 1 after an overrun
enum MrValue : uint8_t { kMrPd, kMrLocalKey, kMrRemoteKey, kMrLength, kMrAddress };
enum SrqValue : uint8_t { kSrqPd, kSrqCq, kSrqType, kSrqNumber };  // kSrqType: enum ibv_srq_type
inline constexpr size_t kObjectValues = 6;

// An entry of a process's list of objects.
struct alignas(64) ObjectStatus {
  SharedNumber kind;  // ObjectKind; kNone if free, or not completely written
  SharedNumber device_index;
  std::array<SharedNumber, kObjectValues> values;
};
static_assert(sizeof(ObjectStatus) == 64);

// Maximum number of objects in a process's list. ObjectCounts counts all objects.
inline constexpr size_t kObjectsPerSlot = 1u << 16;

struct alignas(64) ObjectCounts {
  std::array<SharedNumber, static_cast<size_t>(ObjectKind::kCount)> of_kind;
  SharedNumber places;  // number of list entries ever used
  SharedNumber reserved;
};
static_assert(sizeof(ObjectCounts) == 64);

// Returns the number of the object at index `place` of the slot's list: unique on the host and not 0.
constexpr uint32_t number_of(uint32_t slot, uint32_t place) {
  return slot * static_cast<uint32_t>(kObjectsPerSlot) + place + 1;
}

// The GID of a QP's peer, in memory order. Zeros if the QP has no peer, or the process's library is too old
// to store it.
struct QpPeer {
  std::array<SharedNumber, 2> gid;
};
static_assert(sizeof(QpPeer) == 16);

// The counters of a slot's port to the network: indexes of StatusPage::port.
enum PortCounter : uint8_t {
  kPortSentPackets,
  kPortSentBytes,
  kPortReceivedPackets,
  kPortReceivedBytes,
  kPortSendErrors,
  kPortFirstDropReason,  // from here on: packets dropped, by net::DropReason
};

inline constexpr size_t kPortNumbers = 63;

// The layout of a status page. New members are appended; a page of an older agent is shorter.
struct StatusPage {
  static constexpr uint64_t kMagic = 0x7665726265'6e6102;  // "verben", "a", layout 2
  SharedNumber magic;
  std::array<SharedNumber, kPortNumbers> port;  // by PortCounter
  std::array<QpStatus, kQpsPerSlot> qps;        // by Qpn::index(); pages are allocated when touched
  std::array<PathStatus, kQpsPerSlot> paths;    // likewise
  std::array<QpDetails, kQpsPerSlot> details;   // likewise
  ObjectCounts object_counts;                   // of all objects of the process; set in only one of its pages
  std::array<ObjectStatus, kObjectsPerSlot> objects;
  TraceRings traces;                                  // of the slot's QPs
  std::array<QpMore, kQpsPerSlot> more;               // by Qpn::index()
  alignas(64) SlotSecret secret;                      // written by the agent when it leases the slot
  alignas(64) std::array<QpPeer, kQpsPerSlot> peers;  // by Qpn::index()
};
// Size of the page that agents made before StatusPage::paths was added. A process that gets such a page from
// an old agent publishes no paths.
inline constexpr size_t kStatusBytesWithoutPaths = offsetof(StatusPage, paths);
static_assert(kStatusBytesWithoutPaths == 512 + kQpsPerSlot * sizeof(QpStatus));
// Size of the page before objects were listed.
inline constexpr size_t kStatusBytesWithoutObjects = offsetof(StatusPage, details);
static_assert(kStatusBytesWithoutObjects == kStatusBytesWithoutPaths + kQpsPerSlot * sizeof(PathStatus));
// Size of the page before traces were added.
inline constexpr size_t kStatusBytesWithoutTraces = offsetof(StatusPage, traces);
static_assert(kStatusBytesWithoutTraces == kStatusBytesWithoutObjects + kQpsPerSlot * sizeof(QpDetails) +
                                               sizeof(ObjectCounts) + kObjectsPerSlot * sizeof(ObjectStatus));
// Size of the page before octets were counted.
inline constexpr size_t kStatusBytesWithoutMore = offsetof(StatusPage, more);
static_assert(kStatusBytesWithoutMore == kStatusBytesWithoutTraces + sizeof(TraceRings));
// Size of the page before secrets were added.
inline constexpr size_t kStatusBytesWithoutSecret = offsetof(StatusPage, secret);
static_assert(kStatusBytesWithoutSecret == kStatusBytesWithoutMore + kQpsPerSlot * sizeof(QpMore));
// Size of the page before peers' addresses were added.
inline constexpr size_t kStatusBytesWithoutPeers = offsetof(StatusPage, peers);
static_assert(kStatusBytesWithoutPeers == kStatusBytesWithoutSecret + 64);
static_assert(sizeof(StatusPage) == kStatusBytesWithoutPeers + kQpsPerSlot * sizeof(QpPeer));

// Reads the secret of the page in the file `page`. Returns zeros if the page is unreadable or of an older
// agent.
inline SlotSecret secret_in(int page) {
  SlotSecret secret{};
  const auto at = static_cast<off_t>(offsetof(StatusPage, secret));
  return ::pread(page, secret.data(), sizeof secret, at) == sizeof secret ? secret : SlotSecret{};
}

}  // namespace verbena::protocol
