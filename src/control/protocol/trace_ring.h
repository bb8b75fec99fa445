// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

using SharedNumber = std::atomic<uint64_t>;
static_assert(SharedNumber::is_always_lock_free && sizeof(SharedNumber) == 8);

// What has happened to a slot's QPs of late, for `verbena trace`: rings that the shard writes and the agent
// holds, too, so that they can be read when the process hangs, and when it is gone. They are a part of the
// status page, and of them the same holds: plain numbers, none of which a reader trusts. Events of connection
// management are in rings that the agent writes, one file for each process.
//
// What an event's numbers say stands beside it, in their order. A new kind goes to the end of its part.
enum class TraceKind : uint8_t {
  kNone,

  // What is rare: always written, into the ring of events.
  kQpMade,         // enum ibv_qp_type, device index
  kQpDestroyed,    //
  kState,          // enum ibv_qp_state before and after, TraceCause
  kPeer,           // its GID (two, as it lies in memory), QPN | path MTU << 32, the PSN that is expected
  kReadyToSend,    // first PSN, ACK timeout code | retry_cnt << 8 | rnr_retry << 16
  kRoute,          // TraceWay
  kTimeout,        // the oldest PSN not acknowledged, past the last that was sent, tries left, timeout in ns
  kProbe,          // the PSN that is asked about
  kLost,           // the first PSN, how many packets: taken for lost, and sent again
  kGoesBack,       // the PSN from which on everything is sent again, past the last that was sent
  kImpliedLoss,    // the PSN whose answer was passed over
  kNakSent,        // PSN, AETH syndrome
  kNakReceived,    // PSN, AETH syndrome, tries left if it is an RNR NAK
  kRefused,        // opcode of the request | NAK code << 8, PSN, address, key | bytes << 32
  kOutOfSequence,  // the PSN that came, the one that was expected
  kDuplicate,      // the PSN that came, the one that was expected, opcode
  kSendFailed,     // enum ibv_wc_status | enum ibv_wr_opcode << 32, wr_id, first PSN, bytes
  kReceiveFailed,  // enum ibv_wc_status, wr_id
  kFlushed,        // send requests, receive requests
  kCqOverrun,      // 0: the send queue's, 1: the receive queue's
  kAsyncEvent,     // enum ibv_event_type
  kDropped,        // TraceDrop, opcode, PSN
  kPortFull,       // TraceWay
  kLeftOut,        // TraceKind, how many: they came too fast to be all written
  // Events of connection management: observe/trace/connection_note.h packs their numbers.
  kCmCall,      // the program has called a function of librdmacm, or (with an errno value) the call failed
  kCmSent,      // a message to the peer
  kCmReceived,  // a message from it
  kCmEvent,     // an event for the program
  kRareEnd,

  // Each packet and request: written into the ring of details, while somebody wants them.
  kPosted = 64,     // enum ibv_wr_opcode, wr_id, bytes
  kPacketSent,      // opcode | how many are joined << 8 | AckReq << 16, PSN, bytes of payload, AETH syndrome
  kPacketReceived,  // likewise
  kCompletion,      // enum ibv_wc_status | enum ibv_wc_opcode << 32, wr_id, bytes
  kDetailEnd,
};

enum class TraceCause : uint8_t { kAsked, kFailure, kDeviceGone };
enum class TraceWay : uint8_t { kNowhere, kWire, kMemory };
enum class TraceDrop : uint8_t {
  kNotReady,  // the QP receives nothing in its state
  kWrongService,
  kBadPkey,
  kBadSource,
  kBadQkey,
  kNoReceive,      // a datagram, or a message of an unreliable service
  kBrokenMessage,  // of an unreliable service: it could not be placed whole
};

// The calls of librdmacm that are recorded.
enum class TraceCall : uint8_t {
  kNone,
  kBind,
  kResolveAddress,
  kResolveRoute,
  kListen,
  kConnect,
  kAccept,
  kReject,
  kNotify,
  kDisconnect,
  kDestroy,
  kJoin,
  kLeave,
  kRestore,  // no call: the library makes an identifier known to a new agent
};

inline constexpr size_t kTraceNumbers = 4;

// An entry is written by one thread while others read it. It is whole if `check` says so: all other words
// together, by exclusive or.
struct alignas(64) TraceEntry {
  SharedNumber sequence;  // 1 for the first event of the ring; 0: nothing, or it is being written
  SharedNumber time;      // CLOCK_MONOTONIC, nanoseconds
  SharedNumber what;      // QPN | TraceKind << 32
  std::array<SharedNumber, kTraceNumbers> numbers;
  SharedNumber check;
};
static_assert(sizeof(TraceEntry) == 64);
inline constexpr size_t kTraceWords = sizeof(TraceEntry) / sizeof(uint64_t);

inline constexpr size_t kTraceEntries = 4096;

struct alignas(64) TraceRing {
  SharedNumber written;  // how many events ever were; event number n (from 0) lies at n % kTraceEntries
  std::array<TraceEntry, kTraceEntries> entries;
};
static_assert(sizeof(TraceRing) == 64 + kTraceEntries * sizeof(TraceEntry));

struct TraceRings {
  static constexpr uint64_t kMagic = 0x7665726265'747201;  // "verbe", "tr", layout 1
  alignas(64) SharedNumber magic;                          // 0: the process's library writes none
  TraceRing events;
  TraceRing details;
};
static_assert(sizeof(TraceRings) == 64 + 2 * sizeof(TraceRing));

}  // namespace verbena::protocol
