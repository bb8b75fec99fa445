// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "observe/capture/ring_reader.h"
#include "wire/roce/packet.h"

namespace verbena::capture {

// Whether packets that begin with this opcode may be joined: those of SEND, RDMA WRITE and READ responses, of
// RC.
bool can_be_joined(uint8_t opcode);

// One packet as it would have been on a wire.
struct WirePacket {
  roce::Headers headers;
  ConstBytes payload;          // what is kept of it
  uint32_t payload_bytes = 0;  // without padding
};

// The packets that a record stands for: packet `index` of record.count. The PSNs follow each other; what
// begins or ends a message, asks for an acknowledgement or solicits an event does so in the first or the last
// of them.
WirePacket packet_at(const Record& record, uint32_t index);

}  // namespace verbena::capture
