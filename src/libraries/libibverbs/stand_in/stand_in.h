/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * A stand-in for a vendor's library: perftest, UCX, libfabric and pyverbs are linked to it whether or not
 * there is such a device. Every function says "not my device", by the kind of value it returns; a test checks
 * the kinds against the vendor's header. Arguments are not read; in the C calling conventions the caller
 * removes them.
 */
#define STAND_IN __attribute__((visibility("default")))

static inline int stand_in_refuse(void) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

/* 0 or an errno value. */
#define STAND_IN_CODE(name)   \
  STAND_IN int name(void);    \
  STAND_IN int name(void) {   \
    return stand_in_refuse(); \
  }
/* A descriptor or a size, or -1 and errno. */
#define STAND_IN_MINUS_ONE(name) \
  STAND_IN long name(void);      \
  STAND_IN long name(void) {     \
    stand_in_refuse();           \
    return -1;                   \
  }
/* A pointer, or NULL and errno. */
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
