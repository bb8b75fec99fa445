// SPDX-License-Identifier: Apache-2.0
// What rdma-core's own drivers (libmlx4.so.1 and the like) take from libibverbs. Some programs are linked to
// such a driver without having its device: the driver must load, register itself, and never be called.
// Everything that would reach a kernel device answers EOPNOTSUPP.
#include "verbs/abi.h"

namespace {

int refuse() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

}  // namespace

// Callers pass arguments that we do not read; in the C calling conventions the caller takes them back.
#define PRIVATE_CODE(name) \
  VERBENA_ABI int name() { \
    return refuse();       \
  }
#define PRIVATE_POINTER(name) \
  VERBENA_ABI void* name() {  \
    refuse();                 \
    return nullptr;           \
  }
#define PRIVATE_VOID(name) \
  VERBENA_ABI void name() {}
#include "verbs/private_interface.def"

// A count of attributes, none.
VERBENA_ABI unsigned __ioctl_final_num_attrs(unsigned, void*) {
  return 0;
}

VERBENA_ABI int ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
  refuse();
  return -1;
}

extern "C" {
__attribute__((visibility("default"))) extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
}
