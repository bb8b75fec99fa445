// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/gid_text.h"

#include <arpa/inet.h>

namespace verbena::rdma_core {

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

}  // namespace verbena::rdma_core
