// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "observe/capture/ring_reader.h"
#include "wire/roce/packet.h"

namespace verbena::capture {

// Whether packets of this opcode can form a super-packet: SENDs, RDMA WRITEs and READ responses of RC.
bool can_be_joined(uint8_t opcode);

// One packet as it would be on a wire.
struct WirePacket {
  roce::Headers headers;
  ConstBytes payload;          // the recorded part of the payload
  uint32_t payload_bytes = 0;  // length of the whole payload, without padding
};

// Splits the super-packet of a record: returns packet `index`, from 0 to record.count - 1. PSNs are
// consecutive. Only the first packet can begin the message. Only the last packet can end the message, request
// an acknowledgement and solicit an event.
WirePacket packet_at(const Record& record, uint32_t index);

}  // namespace verbena::capture
