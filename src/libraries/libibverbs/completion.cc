// SPDX-License-Identifier: Apache-2.0
// Completion channels and completion queues.
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/compat_1_0.h"

using namespace verbena::verbs;

// Exists in one version only, so programs of the 1.0 ABI also call it, with a 1.0 context.
VERBENA_ABI ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return call(compat_1_0::current_context(context),
              [](auto& provider) { return provider.create_comp_channel(); });
}

VERBENA_ABI int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return destroy(channel, [&](auto& provider) { return provider.destroy_comp_channel(channel); });
}

VERBENA_ABI ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                  int comp_vector) {
  return call(context,
              [&](auto& provider) { return provider.create_cq(cqe, cq_context, channel, comp_vector); });
}

VERBENA_ABI int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return call(cq, [&](auto& provider) { return provider.resize_cq(cq, cqe); });
}

VERBENA_ABI int ibv_destroy_cq(ibv_cq* cq) {
  return destroy(cq, [&](auto& provider) { return provider.destroy_cq(cq); });
}

VERBENA_ABI int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return call(channel, [&](auto& provider) { return provider.get_cq_event(channel, cq, cq_context); }) == 0
             ? 0
             : -1;
}

VERBENA_ABI void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  on_owner(cq, [&](auto& provider) { provider.ack_cq_events(cq, count); });
}
