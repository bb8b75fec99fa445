// SPDX-License-Identifier: Apache-2.0
#include "adapter/software_context.h"
#include "memory/guarded.h"
#include "memory/placement.h"

namespace verbena::adapter {
namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_HUGETLB | memory::kFlushGlobal;
// Rights a device may ignore (IBV_ACCESS_OPTIONAL_RANGE, of which relaxed ordering is one).
constexpr unsigned kOptionalAccess = IBV_ACCESS_OPTIONAL_RANGE;
constexpr unsigned kWritesRemotely = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// As ib_check_mr_access(): what peers may write the owner may, too.
int check_access(unsigned access) {
  if ((access & kWritesRemotely) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  if ((access & ~(kKnownAccess | kOptionalAccess)) != 0) return EINVAL;
  return 0;
}

}  // namespace

Result<ibv_mr*> SoftwareContext::reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                        unsigned access) {
  if (is_gone()) return fail(EIO);
  if (const int error = check_access(access); error != 0) return fail(error);
  if (length == 0) return fail(EINVAL);
  const bool writable = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  if (auto checked = memory::check_pages(addr, length, writable); !checked)
    return tl::unexpected(checked.error());
  // Again, because the application may have put handlers of its own over ours since.
  memory::install_fault_guard();

  auto mr = std::make_unique<Mr>();
  mr->region.base = static_cast<std::byte*>(addr);
  mr->region.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  mr->region.length = length;
  mr->region.access = access;
  mr->region.pd = Pd::of(pd).id;
  mr->region.owner = mr.get();
  auto key = shard().exclusively([&] { return shard().keys().insert(&mr->region); });
  if (!key) return tl::unexpected(key.error());
  mr->context = &abi().context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->handle = next_handle();
  mr->lkey = mr->rkey = *key;
  ++Pd::of(pd).users;
  const std::lock_guard guard(objects_mutex_);
  mrs_.push_back(*mr);
  return mr.release();
}

int SoftwareContext::dereg_mr(ibv_mr* mr) {
  // With the shard's lock: nobody is in the middle of a copy, and nobody begins another.
  shard().exclusively([&] { shard().keys().remove(Mr::of(mr).region.key); });
  --Pd::of(mr->pd).users;
  const std::lock_guard guard(objects_mutex_);
  delete &Mr::of(mr);
  return 0;
}

}  // namespace verbena::adapter
