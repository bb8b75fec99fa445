// SPDX-License-Identifier: Apache-2.0
// Protection domains and memory regions.
//
// fork() needs no preparation for registered memory. A hardware adapter writes to pinned physical pages, so
// copy-on-write after fork() could leave the parent with a page unknown to the adapter. Here every access
// goes through the owner's page tables, which has the effect of a kernel that copies pinned pages at fork.
// Hiding pages from children (MADV_DONTFORK) would only break the children.
#include "libraries/libibverbs/abi.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace verbena::verbs;

VERBENA_FORWARD(ibv_pd*, ibv_alloc_pd, (ibv_context * context), call, context, alloc_pd())
VERBENA_FORWARD(int, ibv_dealloc_pd, (ibv_pd * pd), destroy, pd, dealloc_pd(pd))

namespace {

ibv_mr* register_memory(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access,
                        const char* name) {
  // Drops optional flags (relaxed ordering): they permit weaker guarantees than providers give.
  const unsigned needed = access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  return call(
      pd, [&](auto& provider) { return provider.reg_mr(pd, addr, length, iova, needed); }, name);
}

}  // namespace

// verbs.h replaces ibv_reg_mr() and ibv_reg_mr_iova() by this call unless the flags are constants. The log
// names the function that the program's source calls.
VERBENA_ABI ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  const char* const name = iova == reinterpret_cast<uintptr_t>(addr) ? "ibv_reg_mr" : "ibv_reg_mr_iova";
  return register_memory(pd, addr, length, iova, access, name);
}

VERBENA_ABI ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_memory(pd, addr, length, iova, static_cast<unsigned>(access), "ibv_reg_mr_iova");
}

VERBENA_ABI ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_memory(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned>(access),
                         "ibv_reg_mr");
}

VERBENA_ABI ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                      int access) {
  return call(pd,
              [&](auto& provider) { return provider.reg_dmabuf_mr(pd, offset, length, iova, fd, access); });
}

// Returns codes of its own (ibv_rereg_mr_err_code), and sets errno.
VERBENA_ABI int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool bad_input = mr == nullptr || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
                         (moves && (length == 0 || addr == nullptr)) ||
                         (access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0) ||
                         ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd == nullptr);
  if (bad_input) {
    answer_code([&] {
      if (mr == nullptr) return is_null("mr");
      return because(EINVAL,
                     "flags {:#x} with pd {}, addr {}, length {} and access {:#x} do not go together "
                     "(ibv_rereg_mr(3))",
                     flags, static_cast<const void*>(pd), static_cast<const void*>(addr), length, access);
    });
    return IBV_REREG_MR_ERR_INPUT;
  }
  const int code =
      call(mr, [&](auto& provider) { return provider.rereg_mr(mr, flags, pd, addr, length, access); });
  if (code != 0) return IBV_REREG_MR_ERR_CMD;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) mr->pd = pd;
  if (moves) {
    mr->addr = addr;
    mr->length = length;
  }
  return 0;
}

VERBENA_FORWARD(int, ibv_dereg_mr, (ibv_mr * mr), destroy, mr, dereg_mr(mr))

VERBENA_ABI int ibv_fork_init() {
  return 0;
}

VERBENA_ABI ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

VERBENA_ABI int ibv_dontfork_range(void*, size_t) {
  return 0;
}

VERBENA_ABI int ibv_dofork_range(void*, size_t) {
  return 0;
}
