// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>

#include "base/log.h"

namespace verbena::agent {

// Does one piece of the agent's work: of a user, a timer or a packet. If the memory for it runs out
// (std::bad_alloc), the rest of the piece is not done, and the agent goes on with other work. Returns false
// then.
template <class Work>
bool survive_lack_of_memory(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
  }
  try {
    log_warning("out of memory: a piece of work is left undone");
  } catch (const std::bad_alloc&) {  // nor for the log
  }
  return false;
}

}  // namespace verbena::agent
