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
// it to answer peers of a stopped process. All requests before `expected` are executed. So an RNR NAK for
// `expected` or an earlier PSN acknowledges only executed requests.
struct ResponderProgress {
  uint32_t expected = 0;  // PSN; 24 bits
  uint32_t msn = 0;       // 24 bits
  uint8_t rnr_retry = 0;  // of the QP's own requester; programs set the same at both ends
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

// The state that a process publishes of its QPs, for `verbena status`: a sparse memfd per slot. The agent
// creates it and writes the secret; the process maps it and writes the rest. Contains plain numbers, none of
// which a reader trusts. All accesses are relaxed atomics, except those of traces and the secret.

// The route of a QP. For shared memory it also tells whether this process executes requests directly in the
// peer's memory (docs/one-host.md). Processes of older versions store only 0 or 1.
enum class QpWay : uint8_t {
  kWire,
  kMemory,      // shared memory; whether direct access works is unknown, or not yet known
  kAllReached,  // requests are executed in the peer's memory
  kOnlyShared,  // executed directly only in memory that is shared anyway: the kernel forbids the rest
  kForbidden,   // the kernel does not let us access the process
  kOtherUser,   // the process is another user's, or not visible from here
  kNotUsable,   // the peer's export table is invalid
};
inline constexpr size_t kQpWays = 7;

inline constexpr size_t kQpNumbers = 25;         // transport::QpCounter, up to its kFirstMoreCounter
inline constexpr size_t kQpMoreNumbers = 8;      // the counters from kFirstMoreCounter on
inline constexpr size_t kQpsPerSlot = 1u << 14;  // roce::Qpn::kPerSlot

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
  kQpSendPsn,          // this and the following may lag by a moment
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

// Meanings of ObjectStatus::values by kind.
enum ContextValue : uint8_t { kContextNone };
enum PdValue : uint8_t { kPdContext, kPdUsers };
enum CqValue : uint8_t { kCqContext, kCqUsers, kCqEntries, kCqOverrun };  // kCqOverrun: 1 after an overrun
enum MrValue : uint8_t { kMrPd, kMrLocalKey, kMrRemoteKey, kMrLength, kMrAddress };
enum SrqValue : uint8_t { kSrqPd, kSrqCq, kSrqType, kSrqNumber };  // kSrqType: enum ibv_srq_type
inline constexpr size_t kObjectValues = 6;

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

// Reads the secret of a page. Returns zeros if the page is unreadable or of an older agent.
inline SlotSecret secret_in(int page) {
  SlotSecret secret{};
  const auto at = static_cast<off_t>(offsetof(StatusPage, secret));
  return ::pread(page, secret.data(), sizeof secret, at) == sizeof secret ? secret : SlotSecret{};
}

}  // namespace verbena::protocol
