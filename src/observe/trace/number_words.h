// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "observe/trace/recorder.h"

namespace verbena::trace {

// Return names for the numbers in events. A traced process may write any number; unknown numbers are
// formatted as numbers.
std::string type_name(uint64_t type);       // enum ibv_qp_type
std::string state_name(uint64_t state);     // enum ibv_qp_state
std::string cause_name(uint64_t cause);     // protocol::TraceCause
std::string way_name(uint64_t way);         // protocol::TraceWay
std::string drop_name(uint64_t reason);     // protocol::TraceDrop
std::string nak_name(uint64_t code);        // roce::NakCode
std::string status_name(uint64_t status);   // enum ibv_wc_status
std::string event_name(uint64_t type);      // enum ibv_event_type
std::string request_name(uint64_t opcode);  // enum ibv_wr_opcode
std::string packet_name(uint64_t opcode);   // BTH opcode

// Returns "PSN 0x00a1b2".
std::string psn_text(uint64_t psn);
// Returns the number of PSNs from `from` up to, but without, `past`.
uint64_t psns_between(uint64_t from, uint64_t past);
std::string count_text(uint64_t count, std::string_view what);  // "1 packet", "2 packets"
std::string syndrome_text(uint64_t syndrome);                   // AETH syndrome
std::string ack_timeout_text(uint64_t code);
// Return the text of a kPacketSent or kPacketReceived event, and the GID in a kPeer or connection event.
std::string packet_text(const Recorder::Numbers& numbers);
std::string gid_text(const Recorder::Numbers& numbers);

}  // namespace verbena::trace
