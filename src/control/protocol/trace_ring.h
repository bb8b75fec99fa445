// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

using SharedNumber = std::atomic<uint64_t>;
static_assert(SharedNumber::is_always_lock_free && sizeof(SharedNumber) == 8);

// The latest events of a slot's QPs, for `verbena trace`. (A slot is a process's share of the QP numbers.)
// The events are in rings in the slot's status page, which the process writes. The agent has the page, too,
// so the rings can be read while the process hangs and after it has ended. Readers do not trust the numbers
// in the rings. Connection management events are in rings of the agent, which returns copies.
//
// The comment behind each kind lists the numbers of the event (TraceEntry::numbers) in order. New kinds are
// appended to one of the two parts: rare events, or packets and requests.
enum class TraceKind : uint8_t {
  kNone,

  // Rare events. They are always written, to TraceRings::events.
  kQpMade,         // enum ibv_qp_type, device index
  kQpDestroyed,    //
  kState,          // enum ibv_qp_state before and after, TraceCause
  kPeer,           // the peer's GID (two numbers, in memory order), QPN | path MTU << 32, expected PSN
  kReadyToSend,    // first PSN, ACK timeout code | retry_cnt << 8 | rnr_retry << 16
  kRoute,          // TraceWay: the new route to the peer
  kTimeout,        // oldest unacknowledged PSN, PSN after the last one sent, tries left, timeout in ns
  kProbe,          // probed PSN
  kLost,           // first PSN, number of packets: these packets are considered lost and are retransmitted
  kGoesBack,       // PSN from which everything is retransmitted, PSN after the last one sent
  kImpliedLoss,    // PSN of a request whose response did not come although a later one did
  kNakSent,        // PSN, AETH syndrome
  kNakReceived,    // PSN, AETH syndrome, tries left for an RNR NAK
  kRefused,        // opcode of the request | NAK code << 8, PSN, address, key | bytes << 32
  kOutOfSequence,  // received PSN, expected PSN
  kDuplicate,      // received PSN, expected PSN, opcode
  kSendFailed,     // enum ibv_wc_status | enum ibv_wr_opcode << 32, wr_id, first PSN, bytes
  kReceiveFailed,  // enum ibv_wc_status, wr_id
  kFlushed,        // number of send requests, number of receive requests
  kCqOverrun,      // 0 for the send queue, 1 for the receive queue
  kAsyncEvent,     // enum ibv_event_type
  kDropped,        // TraceDrop, opcode, PSN
  kPortFull,       // TraceWay: the route on which nothing can be sent at the moment
  kLeftOut,        // TraceKind, number of events suppressed by the rate limit
  // Connection management events: observe/trace/connection_note.h packs their numbers.
  kCmCall,      // a call of a librdmacm function, or its failure with an errno value
  kCmSent,      // message sent to the peer
  kCmReceived,  // message received from the peer
  kCmEvent,     // event for the program
  kRareEnd,

  // Packets and requests. They are written to TraceRings::details while a session traces the process
  // (kStartTrace).
  kPosted = 64,  // enum ibv_wr_opcode, wr_id, bytes
  kPacketSent,  // opcode | packets in the super-packet << 8 | AckReq << 16, PSN, payload bytes, AETH syndrome
  kPacketReceived,  // as for kPacketSent
  kCompletion,      // enum ibv_wc_status | enum ibv_wc_opcode << 32, wr_id, bytes
  kDetailEnd,
};

// The cause of a change of state: the program asked for it, the QP failed, or the device is gone.
enum class TraceCause : uint8_t { kAsked, kFailure, kDeviceGone };
// How a QP reaches its peer: not at all yet, over the network, or by shared memory.
enum class TraceWay : uint8_t { kNowhere, kWire, kMemory };
// The reason why a received packet or message was dropped.
enum class TraceDrop : uint8_t {
  kNotReady,  // the QP does not receive in its state
  kWrongService,
  kBadPkey,
  kBadSource,
  kBadQkey,
  kNoReceive,      // no receive request was posted for a message of an unreliable service
  kBrokenMessage,  // unreliable service: the message could not be placed completely
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
  kRestore,  // no call: the library restores an identifier with a new agent
};

inline constexpr size_t kTraceNumbers = 4;

// An event in a ring. One thread writes an entry, and others may read it at the same time. A copy is
// consistent if `check` is the exclusive or (XOR) of all other words.
struct alignas(64) TraceEntry {
  SharedNumber sequence;  // 1 for the first event of the ring; 0 if empty or being written
  SharedNumber time;      // CLOCK_MONOTONIC, nanoseconds
  SharedNumber what;      // QPN | TraceKind << 32
  std::array<SharedNumber, kTraceNumbers> numbers;
  SharedNumber check;
};
static_assert(sizeof(TraceEntry) == 64);
inline constexpr size_t kTraceWords = sizeof(TraceEntry) / sizeof(uint64_t);

inline constexpr size_t kTraceEntries = 4096;

struct alignas(64) TraceRing {
  SharedNumber written;  // number of events so far; event n (from 0) is at n % kTraceEntries
  std::array<TraceEntry, kTraceEntries> entries;
};
static_assert(sizeof(TraceRing) == 64 + kTraceEntries * sizeof(TraceEntry));

// The trace rings of a slot: one for rare events, and one for requests and packets.
struct TraceRings {
  static constexpr uint64_t kMagic = 0x7665726265'747201;  // "verbe", "tr", layout 1
  alignas(64) SharedNumber magic;                          // 0 if the process's library writes no traces
  TraceRing events;
  TraceRing details;
};
static_assert(sizeof(TraceRings) == 64 + 2 * sizeof(TraceRing));

}  // namespace verbena::protocol
