// SPDX-License-Identifier: Apache-2.0
// fork() and registered memory. A real adapter writes to pinned physical pages, so a page copied on write
// after fork() could leave the parent with a copy that the adapter does not know. Here every access goes
// through the owner's page tables, as a kernel that copies pinned pages at fork gives it: nothing needs to be
// prepared, and hiding pages from children (MADV_DONTFORK) would only break them.
#include "libraries/libibverbs/abi.h"

VERBENA_ABI int ibv_fork_init() {
  return 0;
}

VERBENA_ABI ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

VERBENA_ABI int ibv_dontfork_range(void*, size_t) {
  return 0;
}

VERBENA_ABI int ibv_dofork_range(void*, size_t) {
  return 0;
}
