// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "control/protocol/trace_ring.h"
#include "observe/trace/recorder.h"
#include "wire/roce/path.h"

namespace verbena::trace {

// The content of a trace event of connection management (kCmCall, kCmSent, kCmReceived, kCmEvent), except the
// queue pair's number, which every trace event has.
struct ConnectionNote {
  roce::Address peer{};  // zero if unknown
  uint16_t port = 0;     // peer's port in host order; 0 if unknown
  uint32_t id = 0;       // number of the rdma_cm_id, as `rdma resource show cm_id` prints it
  uint8_t what = 0;  // kCmCall: protocol::TraceCall; kCmSent, kCmReceived: cm::MessageType; kCmEvent: enum
                     // rdma_cm_event_type
  uint32_t remote_qpn = 0;   // 0 if unknown
  uint16_t repetitions = 0;  // kCmSent, kCmReceived: cm::Passage::repetitions
  // kCmCall: 0, or the errno value of a failed call. kCmSent, kCmReceived: cm::Passage::reason. kCmEvent:
  // rdma_cm_event::status.
  int32_t status = 0;

  friend bool operator==(const ConnectionNote&, const ConnectionNote&) = default;
};

// Encodes a note in an event's four numbers. Numbers 0 and 1 are the peer's address. Number 2 is `id | port
// << 32 | repetitions << 48`. Number 3 is `what | remote_qpn << 8 | status << 32`.
Recorder::Numbers packed(const ConnectionNote& note);
ConnectionNote unpacked(const Recorder::Numbers& numbers);

// Returns whether events of this kind are about connection management.
constexpr bool is_of_connection(Kind kind) {
  return kind == Kind::kCmCall || kind == Kind::kCmSent || kind == Kind::kCmReceived ||
         kind == Kind::kCmEvent;
}

// Returns the event as text for people. Works for any numbers, also invalid ones. REQUIRES:
// is_of_connection(kind)
std::string connection_text(Kind kind, const Recorder::Numbers& numbers);
// Returns the name of the event's call, message or rdma_cm event, such as "rdma_connect", "REQ",
// "RDMA_CM_EVENT_ESTABLISHED".
std::string connection_subject(Kind kind, const Recorder::Numbers& numbers);
// Returns whether the event is a kCmEvent whose type reports a failure, such as RDMA_CM_EVENT_REJECTED.
// Returns false for a failed call and for a received REJ.
bool is_connection_failure(Kind kind, const Recorder::Numbers& numbers);

}  // namespace verbena::trace
