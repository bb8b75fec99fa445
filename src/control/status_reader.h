// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control/admin.h"

namespace verbena::control {

// Reads the numbers of a status page that another process writes, the QPs in use only. Reads the file rather
// than map it: its owner may do with the file what it likes.
void read_status_page(int fd, SlotStatus& slot);

}  // namespace verbena::control
