// SPDX-License-Identifier: Apache-2.0
#include "base/settle_context.h"

#include "libraries/libibverbs/abi.h"

VERBENA_ABI void verbena_settle_context(ibv_context* context) noexcept {
  if (verbena::provider::Context* const known = verbena::provider::find_owner(context)) known->settle();
}
