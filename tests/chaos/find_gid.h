// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <string.h>

// Returns the index of the GID for this IPv4 address on the device; -1 if there is none.
static int find_gid(struct ibv_context* context, const char* address, union ibv_gid* gid) {
  union ibv_gid wanted = {.raw = {[10] = 0xff, [11] = 0xff}};
  if (inet_pton(AF_INET, address, wanted.raw + 12) != 1) return -1;
  for (int i = 0; i < 64 && ibv_query_gid(context, 1, i, gid) == 0; ++i) {
    if (memcmp(gid->raw, wanted.raw, 16) == 0) return i;
  }
  return -1;
}
