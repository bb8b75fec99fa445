// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// Which QPs of a page to read. The numbers of a destroyed QP stay until another gets its place.
enum class QpChoice : uint8_t { kInUse, kAll };

// Reads the numbers of a status page that another process writes. Reads the file instead of mapping it,
// because the file's owner may do anything with it. Calls nothing that waits for the file's lock (as lseek(2)
// does), which a process that writes into the file can hold for any time.
void read_status_page(int fd, SlotStatus& slot, QpChoice choice = QpChoice::kInUse);

// Reads the page's list of other objects, and the details of the QPs in slot.qps, in the same way.
void read_objects(int fd, SlotStatus& slot);

// Some QPs of a page, for programs that read many pages step by step.
struct QpsRead {
  std::vector<QpNumbers> qps;
  std::vector<uint32_t> places;  // of each, in the page
  uint32_t next = 0;             // where to go on; kQpsPerSlot: all were read
  size_t work = 0;               // the cost of reading: about one for each QP
};
// Reads QPs from `first` on, used or not, for a fraction of a millisecond. Leaves out those that are not in
// memory now (swapped out, or never touched).
QpsRead read_some_qps(int fd, uint32_t first);

}  // namespace verbena::control
