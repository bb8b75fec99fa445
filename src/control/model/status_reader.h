// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// Which QPs of a page are wanted: the numbers of one that is gone stay until another gets its place.
enum class QpChoice : uint8_t { kInUse, kAll };

// Reads the numbers of a status page that another process writes. Reads the file rather than map it: its
// owner may do with the file what it likes. Nothing is called that waits for the file's lock (lseek(2) does),
// which a process that writes into it may keep for as long as it likes.
void read_status_page(int fd, SlotStatus& slot, QpChoice choice = QpChoice::kInUse);

// Likewise its list of other objects, and what QPs have of it.
void read_objects(int fd, SlotStatus& slot);

// A page's QPs little by little, for who looks at many pages.
struct QpsRead {
  std::vector<QpNumbers> qps;
  std::vector<uint32_t> places;  // of each, in the page
  uint32_t next = 0;             // where to go on; kQpsPerSlot: that was all
  size_t work = 0;               // what it has cost: about one for each QP
};
// Those from `first` on, as many as take a fraction of a millisecond, used or not. What is not in memory now
// (swapped out, or never touched) is left out.
QpsRead read_some_qps(int fd, uint32_t first);

}  // namespace verbena::control
