// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>

#include "libraries/librdmacm/abi.h"
#include "libraries/librdmacm/newer.h"
#include "management/cm/event_names.h"

static_assert(verbena::cm::kEventNames == verbena::rdmacm::kAddressInformationError + 1);

VERBENA_ABI const char* rdma_event_str(rdma_cm_event_type event) {
  uint32_t type;  // may be newer than the enumeration in our header
  std::memcpy(&type, &event, sizeof type);
  return verbena::cm::event_name(type);
}
