// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/provider/provider.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace verbena::provider {

Context::Context() {
  ibv_context& context = abi_.context;
  context.cmd_fd = -1;
  context.async_fd = -1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  // verbs.h adds new operations at the front. The size covers the operations that we fill, up to query_port,
  // independently of the headers of the build.
  abi_.sz = sizeof abi_ - offsetof(verbs_context, query_port);
  abi_.priv = reinterpret_cast<verbs_ex_private*>(this);
  live_.enter(&context, *this);
}

Context::~Context() {
  live_.leave();
  pthread_mutex_destroy(&abi_.context.mutex);
}

Context& Context::of(ibv_context* context) {
  return *reinterpret_cast<Context*>(verbs_get_ctx(context)->priv);
}

std::atomic<uint64_t>& Context::comp_cntr_value(CompletionCounter*, bool) {
  std::abort();  // unreachable: no provider without counters created one
}

}  // namespace verbena::provider
