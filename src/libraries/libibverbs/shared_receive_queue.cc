// SPDX-License-Identifier: Apache-2.0
// Shared receive queues.
#include "libraries/libibverbs/abi.h"

using namespace verbena::verbs;
using verbena::fail;
using verbena::Result;

VERBENA_ABI ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_srq*> {
    auto* provider = owner(pd);
    if (provider == nullptr) return fail(EINVAL);
    if (attr == nullptr) return fail(is_null("srq_init_attr"));
    ibv_srq_init_attr_ex wanted{};
    wanted.srq_context = attr->srq_context;
    wanted.attr = attr->attr;
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    wanted.srq_type = IBV_SRQT_BASIC;
    wanted.pd = pd;
    auto srq = provider->create_srq(&wanted);
    if (srq) attr->attr = wanted.attr;
    return srq;
  });
}

VERBENA_ABI int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return answer_code([&] {
    auto* provider = owner(srq);
    return provider != nullptr ? provider->modify_srq(srq, attr, mask) : EINVAL;
  });
}

VERBENA_ABI int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return answer_code([&] {
    auto* provider = owner(srq);
    return provider != nullptr ? provider->query_srq(srq, attr) : EINVAL;
  });
}

VERBENA_ABI int ibv_destroy_srq(ibv_srq* srq) {
  return answer_code([&] { return destroy(srq, [&](auto& provider) { return provider.destroy_srq(srq); }); });
}
