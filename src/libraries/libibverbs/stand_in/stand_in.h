/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Macros that define the functions of a stand-in for a vendor's library. perftest, UCX, libfabric and pyverbs
 * are linked to the library even without such a device. There is a macro for each kind of return value. A
 * function that can report an error fails with EOPNOTSUPP; a bool function returns false. A test compares the
 * kinds with the vendor's header. The functions ignore their arguments: in the C calling conventions, the
 * caller removes them.
 */
#define STAND_IN __attribute__((visibility("default")))

static inline int stand_in_refuse(void) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

/* For a function that returns 0 or an errno value: returns EOPNOTSUPP. */
#define STAND_IN_CODE(name)   \
  STAND_IN int name(void);    \
  STAND_IN int name(void) {   \
    return stand_in_refuse(); \
  }
/* For a function that returns a descriptor or a size: returns -1 and sets errno to EOPNOTSUPP. */
#define STAND_IN_MINUS_ONE(name) \
  STAND_IN long name(void);      \
  STAND_IN long name(void) {     \
    stand_in_refuse();           \
    return -1;                   \
  }
/* For a function that returns a pointer: returns NULL and sets errno to EOPNOTSUPP. */
#define STAND_IN_POINTER(name) \
  STAND_IN void* name(void);   \
  STAND_IN void* name(void) {  \
    stand_in_refuse();         \
    return NULL;               \
  }
#define STAND_IN_BOOL(name)  \
  STAND_IN bool name(void);  \
  STAND_IN bool name(void) { \
    return false;            \
  }
#define STAND_IN_VOID(name) \
  STAND_IN void name(void); \
  STAND_IN void name(void) {}
