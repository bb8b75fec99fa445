// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/memory_operations.h"

#include "libraries/libibverbs/abi.h"

namespace verbena::verbs {
namespace {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return answer_pointer(
      [&] { return with_owner(pd, [&](auto& provider) { return provider.alloc_mw(pd, type); }); });
}

int dealloc_mw(ibv_mw* mw) {
  return answer_code([&] { return destroy(mw, [&](auto& provider) { return provider.dealloc_mw(mw); }); });
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_dm*> {
    if (attr == nullptr) return fail(is_null("attr"));
    return with_owner(context, [&](auto& provider) { return provider.alloc_dm(attr); });
  });
}

int free_dm(ibv_dm* dm) {
  return answer_code([&] { return destroy(dm, [&](auto& provider) { return provider.free_dm(dm); }); });
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  return answer_pointer([&]() -> Result<ibv_mr*> {
    if (owner(dm) == nullptr || owner(pd) == nullptr) return fail(EINVAL);
    if (owner(dm) != owner(pd)) return fail(because(EINVAL, "dm and pd are of different ibv_contexts"));
    return with_owner(pd, [&](auto& provider) { return provider.reg_dm_mr(pd, dm, offset, length, access); });
  });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  return answer_pointer(
      [&] { return with_owner(pd, [&](auto& provider) { return provider.alloc_null_mr(pd); }); });
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
  return answer_code([&] {
    if (list == nullptr) return is_null("sg_list");
    return with_owner(pd, [&](auto& provider) {
      return provider.advise_mr(pd, advice, flags, {list, count});
    });
  });
}

}  // namespace

void fill_memory_operations(verbs_context& abi) {
  abi.context.ops.alloc_mw = alloc_mw;
  abi.context.ops.dealloc_mw = dealloc_mw;
  abi.alloc_dm = alloc_dm;
  abi.free_dm = free_dm;
  abi.reg_dm_mr = reg_dm_mr;
  abi.alloc_null_mr = alloc_null_mr;
  abi.advise_mr = advise_mr;
}

}  // namespace verbena::verbs
