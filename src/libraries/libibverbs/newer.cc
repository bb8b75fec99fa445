// SPDX-License-Identifier: Apache-2.0
// The functions of IBVERBS_1.15 to 1.18, which the headers of the build may lack (VERBENA_NEWER_ABI).
#include "libraries/libibverbs/newer.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "libraries/libibverbs/abi.h"

namespace verbena::verbs::newer {
namespace {

constexpr uint64_t kKnownMask =
    kRegMrIova | kRegMrAddr | kRegMrFd | kRegMrFdOffset | kRegMrDmaHandle | kRegMrBuf;

Result<ibv_mr*> register_by_fd(ibv_pd* pd, const MrInitAttr& attr) {
  constexpr uint64_t kNeeded = kRegMrFdOffset | kRegMrIova;
  if ((attr.comp_mask & kRegMrAddr) != 0 || (attr.comp_mask & kNeeded) != kNeeded)
    return fail(because(EINVAL, "comp_mask {:#x}: a registration by fd takes fd_offset and iova, and no addr",
                        attr.comp_mask));
  return with_owner(pd, [&](auto& provider) {
    return provider.reg_dmabuf_mr(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, attr.access);
  });
}

Result<ibv_mr*> register_by_address(ibv_pd* pd, const MrInitAttr& attr) {
  if ((attr.comp_mask & kRegMrAddr) == 0 || (attr.comp_mask & kRegMrFdOffset) != 0)
    return fail(because(EINVAL, "comp_mask {:#x}: a registration without fd takes addr, and no fd_offset",
                        attr.comp_mask));
  const uint64_t iova =
      (attr.comp_mask & kRegMrIova) != 0 ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
  const unsigned access = static_cast<unsigned>(attr.access) & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  return with_owner(
      pd, [&](auto& provider) { return provider.reg_mr(pd, attr.addr, attr.length, iova, access); });
}

// Whether the range lies within the buffer, and the buffer belongs to this protection domain.
bool fits_its_buffer(const ibv_pd* pd, const MrInitAttr& attr) {
  if ((attr.comp_mask & kRegMrAddr) == 0 || (attr.comp_mask & (kRegMrFd | kRegMrFdOffset)) != 0) return false;
  if (attr.buf == nullptr) return false;
  if (attr.buf->context != pd->context || attr.buf->pd_handle != pd->handle) return false;
  const auto base = reinterpret_cast<uintptr_t>(attr.buf->addr);
  const auto from = reinterpret_cast<uintptr_t>(attr.addr);
  return from >= base && from - base <= attr.buf->size && attr.length <= attr.buf->size - (from - base);
}

// Checks that the handle is of the same context, and that the region is not on demand: the device stores the
// handle's hints for each page.
int check_dma_handle(const ibv_pd* pd, const MrInitAttr& attr) {
  const provider::Context* const maker = owner(attr.dmah);
  if (maker == nullptr) return EINVAL;
  if (maker != owner(pd)) return because(EINVAL, "dmah and pd are of different ibv_contexts");
  if ((attr.access & IBV_ACCESS_ON_DEMAND) != 0)
    return because(EINVAL, "access {:#x}: a region with a DMA handle cannot be on demand", attr.access);
  return 0;
}

}  // namespace

VERBENA_NEWER_ABI(ibv_mr*, ibv_reg_mr_ex, ibv_pd* pd, MrInitAttr* attr) {
  return answer_pointer([&]() -> Result<ibv_mr*> {
    if (owner(pd) == nullptr) return fail(EINVAL);
    if (attr == nullptr) return fail(is_null("mr_init_attr"));
    if ((attr->comp_mask & ~kKnownMask) != 0) return fail(EOPNOTSUPP);
    if ((attr->comp_mask & kRegMrBuf) != 0 && !fits_its_buffer(pd, *attr))
      return fail(
          because(EINVAL, "addr and length are not within buf, or buf is of another protection domain"));
    const bool has_handle = (attr->comp_mask & kRegMrDmaHandle) != 0;
    if (const int error = has_handle ? check_dma_handle(pd, *attr) : 0; error != 0) return fail(error);
    auto mr = (attr->comp_mask & kRegMrFd) != 0 ? register_by_fd(pd, *attr) : register_by_address(pd, *attr);
    if (mr && has_handle) owner(pd)->use_dmah(*mr, attr->dmah);
    return mr;
  });
}

VERBENA_NEWER_ABI(void*, ibv_alloc_buf, ibv_pd* pd, size_t size, Buffer** buf) {
  return answer_pointer([&]() -> Result<void*> {
    if (owner(pd) == nullptr) return fail(EINVAL);
    if (buf == nullptr) return fail(is_null("buf"));
    auto made = std::make_unique<Buffer>();
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (const int code = ::posix_memalign(&made->addr, page, size)) return fail(code);
    made->context = pd->context;
    made->pd_handle = pd->handle;
    made->size = size;
    *buf = made.release();
    return (*buf)->addr;
  });
}

VERBENA_NEWER_ABI(void, ibv_free_buf, Buffer* buf) {
  if (buf == nullptr) return;
  std::free(buf->addr);
  delete buf;
}

VERBENA_NEWER_ABI(ibv_mr*, ibv_reg_buf_mr, ibv_pd* pd, Buffer* buf, void* addr, size_t length, int access) {
  MrInitAttr attr{};
  attr.length = length;
  attr.access = access;
  attr.comp_mask = kRegMrBuf | kRegMrAddr;
  attr.addr = addr;
  attr.buf = buf;
  return ibv_reg_mr_ex(pd, &attr);
}

// Our buffers are ordinary memory, which no dma-buf can export.
VERBENA_NEWER_ABI(int, ibv_export_buf_dmabuf_fd, Buffer*) {
  return answer_minus_one([] { return ENODATA; });
}

VERBENA_NEWER_ABI(int, ibv_dm_export_dmabuf_fd, ibv_dm* dm) {
  int fd = -1;
  answer_minus_one([&] {
    auto* provider = owner(dm);
    if (provider == nullptr) return EINVAL;
    auto exported = provider->export_dm(dm);
    if (!exported) return exported.error().code;
    fd = exported->release();
    return 0;
  });
  return fd;
}

VERBENA_NEWER_ABI(provider::DmaHandle*, ibv_alloc_dmah, ibv_context* context,
                  const provider::DmaHandleInitAttr* attr) {
  return answer_pointer([&]() -> Result<provider::DmaHandle*> {
    if (attr == nullptr) return fail(is_null("attr"));
    return with_owner(context, [&](auto& provider) { return provider.alloc_dmah(*attr); });
  });
}

VERBENA_NEWER_ABI(int, ibv_dealloc_dmah, provider::DmaHandle* handle) {
  return answer_code(
      [&] { return destroy(handle, [&](auto& provider) { return provider.dealloc_dmah(handle); }); });
}

// ---- completion counters

// Fills the part of `caps` that the caller's and our headers share, and zeros the rest.
VERBENA_NEWER_ABI(int, _ibv_query_comp_cntr_caps, ibv_context* context, void* caps, size_t size) {
  return answer_code([&] {
    if (caps == nullptr) return is_null("caps");
    return with_owner(context, [&](auto& provider) {
      provider::CompletionCounterCaps known{};
      if (const int error = provider.query_comp_cntr_caps(known); error != 0) return error;
      std::memset(caps, 0, size);
      std::memcpy(caps, &known, std::min(size, sizeof known));
      return 0;
    });
  });
}

VERBENA_NEWER_ABI(provider::CompletionCounter*, ibv_create_comp_cntr, ibv_context* context,
                  const provider::CompletionCounterInitAttr* attr) {
  return answer_pointer([&]() -> Result<provider::CompletionCounter*> {
    if (attr == nullptr) return fail(is_null("cc_attr"));
    return with_owner(context, [&](auto& provider) { return provider.create_comp_cntr(*attr); });
  });
}

VERBENA_NEWER_ABI(int, ibv_destroy_comp_cntr, provider::CompletionCounter* counter) {
  return answer_code(
      [&] { return destroy(counter, [&](auto& provider) { return provider.destroy_comp_cntr(counter); }); });
}

// The six functions that access one of a counter's two values.
#define ON_VALUE(name, argument, errors, action)                                    \
  VERBENA_NEWER_ABI(int, name, provider::CompletionCounter* counter, argument) {    \
    return answer_code([&] {                                                        \
      return with_owner(counter, [&](auto& provider) {                              \
        std::atomic<uint64_t>& counted = provider.comp_cntr_value(counter, errors); \
        action;                                                                     \
        return 0;                                                                   \
      });                                                                           \
    });                                                                             \
  }
#define READ_VALUE                               \
  if (value == nullptr) return is_null("value"); \
  *value = counted.load(std::memory_order_acquire)
ON_VALUE(ibv_set_comp_cntr, uint64_t value, false, counted.store(value))
ON_VALUE(ibv_set_err_comp_cntr, uint64_t value, true, counted.store(value))
ON_VALUE(ibv_inc_comp_cntr, uint64_t amount, false, counted.fetch_add(amount))
ON_VALUE(ibv_inc_err_comp_cntr, uint64_t amount, true, counted.fetch_add(amount))
ON_VALUE(ibv_read_comp_cntr, uint64_t* value, false, READ_VALUE)
ON_VALUE(ibv_read_err_comp_cntr, uint64_t* value, true, READ_VALUE)
#undef READ_VALUE
#undef ON_VALUE

VERBENA_NEWER_ABI(int, ibv_qp_attach_comp_cntr, ibv_qp* qp, provider::CompletionCounter* counter,
                  const provider::AttachCounterAttr* attr) {
  return answer_code([&] {
    auto* const maker = owner(counter);
    if (maker == nullptr || owner(qp) == nullptr) return EINVAL;
    if (attr == nullptr) return is_null("attr");
    if (maker != owner(qp)) return because(EINVAL, "comp_cntr and qp are of different ibv_contexts");
    if (attr->comp_mask != 0) return because(EOPNOTSUPP, "comp_mask {:#x} is not 0", attr->comp_mask);
    return maker->attach_comp_cntr(qp, counter, attr->op_mask);
  });
}

}  // namespace verbena::verbs::newer
