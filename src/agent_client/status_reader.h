// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent_client/agent_status.h"

namespace verbena::agent_client {

// Which QPs of a page are wanted: the numbers of one that is gone stay until another gets its place.
enum class QpChoice : uint8_t { kInUse, kAll };

// Reads the numbers of a status page that another process writes. Reads the file rather than map it: its
// owner may do with the file what it likes.
void read_status_page(int fd, SlotStatus& slot, QpChoice choice = QpChoice::kInUse);

}  // namespace verbena::agent_client
