// SPDX-License-Identifier: Apache-2.0
// The record of the calling thread's calls, for this library and its callers (base/failed_call.h).
#include "base/failed_call.h"
#include "libraries/libibverbs/abi.h"

VERBENA_ABI verbena::CallRecord* verbena_call_record() noexcept {
  static constinit thread_local verbena::CallRecord record{};
  return &record;
}
