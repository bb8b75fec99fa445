// SPDX-License-Identifier: Apache-2.0
// rdma-core's private interface between libibverbs and its other libraries, in every version that programs
// use. ibv_devinfo, perftest and pyverbs call two of its functions. Some programs are linked to a driver
// (libmlx4.so.1 and the like) without having its device. The driver must load and register itself, but is
// never called. So functions that would reach a kernel device fail with EOPNOTSUPP. Built only into the
// shared library, because a program cannot define versioned symbols.
#include "libraries/libibverbs/abi.h"

#define EXPORTED __attribute__((used, visibility("default")))

extern "C" {
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);

// These functions ignore the arguments that callers pass; in the C calling conventions the caller removes
// them.
EXPORTED int private_code() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

EXPORTED int private_minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

EXPORTED void* private_pointer() {
  errno = EOPNOTSUPP;
  return nullptr;
}

EXPORTED unsigned private_zero() {
  return 0;
}

EXPORTED void private_void() {}

EXPORTED int private_gid_type(ibv_context* context, uint8_t port, unsigned index,
                              verbena::verbs::GidSysfsType* type) {
  return ibv_query_gid_type(context, port, index, type);
}

EXPORTED const char* private_opcode(ibv_wr_opcode opcode) {
  return ibv_wr_opcode_str(opcode);
}

__attribute__((visibility("default"))) extern bool private_flag;
bool private_flag = false;
}

#define TEXT_OF(token) #token
#define TEXT(token) TEXT_OF(token)
#define VERSIONED(name, definition) \
  __asm__(".symver " #definition ", " #name AT "IBVERBS_PRIVATE_" TEXT(PRIVATE_NODE));
#define PRIVATE_CODE(name) VERSIONED(name, private_code)
#define PRIVATE_MINUS_ONE(name) VERSIONED(name, private_minus_one)
#define PRIVATE_POINTER(name) VERSIONED(name, private_pointer)
#define PRIVATE_ZERO(name) VERSIONED(name, private_zero)
#define PRIVATE_VOID(name) VERSIONED(name, private_void)
#define PRIVATE_FLAG(name) VERSIONED(name, private_flag)

// Node 34 has the default versions. libibverbs.map assigns the versions of the two functions that work.
#define PRIVATE_GID_TYPE(name)
#define PRIVATE_OPCODE(name)
#define AT "@@"
#define PRIVATE_NODE 34
#include "libraries/libibverbs/private_interface.def"

#undef PRIVATE_GID_TYPE
#undef PRIVATE_OPCODE
#undef AT
#define PRIVATE_GID_TYPE(name) VERSIONED(name, private_gid_type)
#define PRIVATE_OPCODE(name) VERSIONED(name, private_opcode)
#define AT "@"
#undef PRIVATE_NODE
#define PRIVATE_NODE 25
#include "libraries/libibverbs/private_interface.def"
#undef PRIVATE_NODE
#define PRIVATE_NODE 33
#include "libraries/libibverbs/private_interface.def"
#undef PRIVATE_NODE
#define PRIVATE_NODE 57
#include "libraries/libibverbs/private_interface.def"
#undef PRIVATE_NODE
#define PRIVATE_NODE 59
#include "libraries/libibverbs/private_interface.def"
#undef PRIVATE_NODE
#define PRIVATE_NODE 64
#include "libraries/libibverbs/private_interface.def"
#undef PRIVATE_NODE
#define PRIVATE_NODE 65
#include "libraries/libibverbs/private_interface.def"
