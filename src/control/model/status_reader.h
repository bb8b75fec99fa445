// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// Selects the QPs of a page to read: only QPs in use, or also destroyed QPs whose entry was not reused yet.
enum class QpChoice : uint8_t { kInUse, kAll };

// Reads ports' and QPs' numbers from a status page that another process writes, into `slot`. Reads the file
// instead of mapping it, so that nothing that the other process does with the file can kill the reader. Makes
// no call that waits for the file's lock (as lseek(2) does), which a process that writes to the file can hold
// for any time.
void read_status_page(int fd, SlotStatus& slot, QpChoice choice = QpChoice::kInUse);

// Like read_status_page(), but reads the page's list of objects and the details of the QPs in slot.qps.
void read_objects(int fd, SlotStatus& slot);

// The result of read_some_qps().
struct QpsRead {
  std::vector<QpNumbers> qps;
  std::vector<uint32_t> places;  // by element of `qps`: the QP's index in the page
  uint32_t next = 0;             // `first` of the next call; kQpsPerSlot if all were read
  size_t work = 0;               // the cost of reading: about one for each QP
};
// Reads QPs from index `first` on, also destroyed ones, and stops after about 2,300 units of QpsRead::work.
// Called repeatedly to read many pages in small steps. Leaves out QPs whose entry is not in memory now
// (swapped out, or never written).
QpsRead read_some_qps(int fd, uint32_t first);

}  // namespace verbena::control
