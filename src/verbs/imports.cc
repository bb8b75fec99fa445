// SPDX-License-Identifier: Apache-2.0
// Objects shared with another process through its kernel file: there is no kernel file here.
#include "verbs/abi.h"

using verbena::fail;
using verbena::Result;
using verbena::verbs::answer_pointer;

VERBENA_ABI ibv_context* ibv_import_device(int) {
  return answer_pointer([]() -> Result<ibv_context*> { return fail(EOPNOTSUPP); });
}

VERBENA_ABI ibv_pd* ibv_import_pd(ibv_context*, uint32_t) {
  return answer_pointer([]() -> Result<ibv_pd*> { return fail(EOPNOTSUPP); });
}

VERBENA_ABI ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) {
  return answer_pointer([]() -> Result<ibv_mr*> { return fail(EOPNOTSUPP); });
}

VERBENA_ABI ibv_dm* ibv_import_dm(ibv_context*, uint32_t) {
  return answer_pointer([]() -> Result<ibv_dm*> { return fail(EOPNOTSUPP); });
}

VERBENA_ABI void ibv_unimport_pd(ibv_pd*) {}

VERBENA_ABI void ibv_unimport_mr(ibv_mr*) {}

VERBENA_ABI void ibv_unimport_dm(ibv_dm*) {}
