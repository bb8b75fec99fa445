// SPDX-License-Identifier: Apache-2.0
// fork() needs no preparation for registered memory. A hardware adapter writes to pinned physical pages, so
// copy-on-write after fork() could leave the parent with a page unknown to the adapter. Here every access
// goes through the owner's page tables, which has the effect of a kernel that copies pinned pages at fork.
// Hiding pages from children (MADV_DONTFORK) would only break the children.
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
