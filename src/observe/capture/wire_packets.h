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
  ConstBytes payload;          // kept part
  uint32_t payload_bytes = 0;  // without padding
};

// Splits a record: returns packet `index` of record.count. PSNs are consecutive. The first or the last packet
// begins or ends the message, requests the acknowledgement and solicits the event.
WirePacket packet_at(const Record& record, uint32_t index);

}  // namespace verbena::capture
