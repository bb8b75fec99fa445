// SPDX-License-Identifier: Apache-2.0
// The functions of IBVERBS_1.15 to 1.18, which the headers of the build may lack (VERBENA_NEWER_ABI).
#include <cstdlib>

#include <unistd.h>

#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::verbs::newer {
namespace {

constexpr uint64_t kKnownMask =
    kRegMrIova | kRegMrAddr | kRegMrFd | kRegMrFdOffset | kRegMrDmaHandle | kRegMrBuf;

Result<ibv_mr*> register_by_fd(provider::Context& provider, ibv_pd* pd, const MrInitAttr& attr) {
  constexpr uint64_t kNeeded = kRegMrFdOffset | kRegMrIova;
  if ((attr.comp_mask & kRegMrAddr) != 0 || (attr.comp_mask & kNeeded) != kNeeded)
    return fail(because(EINVAL, "comp_mask {:#x}: a registration by fd takes fd_offset and iova, and no addr",
                        attr.comp_mask));
  return provider.reg_dmabuf_mr(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, attr.access);
}

Result<ibv_mr*> register_by_address(provider::Context& provider, ibv_pd* pd, const MrInitAttr& attr) {
  if ((attr.comp_mask & kRegMrAddr) == 0 || (attr.comp_mask & kRegMrFdOffset) != 0)
    return fail(because(EINVAL, "comp_mask {:#x}: a registration without fd takes addr, and no fd_offset",
                        attr.comp_mask));
  const uint64_t iova =
      (attr.comp_mask & kRegMrIova) != 0 ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
  const unsigned access = static_cast<unsigned>(attr.access) & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  return provider.reg_mr(pd, attr.addr, attr.length, iova, access);
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
int check_dma_handle(const provider::Context& provider, const MrInitAttr& attr) {
  const provider::Context* const maker = owner(attr.dmah);
  if (maker == nullptr) return EINVAL;
  if (maker != &provider) return because(EINVAL, "dmah and pd are of different ibv_contexts");
  if ((attr.access & IBV_ACCESS_ON_DEMAND) != 0)
    return because(EINVAL, "access {:#x}: a region with a DMA handle cannot be on demand", attr.access);
  return 0;
}

}  // namespace

VERBENA_NEWER_ABI(ibv_mr*, ibv_reg_mr_ex, ibv_pd* pd, MrInitAttr* attr) {
  return call(pd, {"mr_init_attr", attr}, [&](auto& provider) -> Result<ibv_mr*> {
    if ((attr->comp_mask & ~kKnownMask) != 0) return fail(EOPNOTSUPP);
    if ((attr->comp_mask & kRegMrBuf) != 0 && !fits_its_buffer(pd, *attr))
      return fail(
          because(EINVAL, "addr and length are not within buf, or buf is of another protection domain"));
    const bool has_handle = (attr->comp_mask & kRegMrDmaHandle) != 0;
    if (const int error = has_handle ? check_dma_handle(provider, *attr) : 0; error != 0) return fail(error);
    auto mr = (attr->comp_mask & kRegMrFd) != 0 ? register_by_fd(provider, pd, *attr)
                                                : register_by_address(provider, pd, *attr);
    if (mr && has_handle) provider.use_dmah(*mr, attr->dmah);
    return mr;
  });
}

VERBENA_NEWER_ABI(void*, ibv_alloc_buf, ibv_pd* pd, size_t size, Buffer** buf) {
  return call(pd, {"buf", buf}, [&](auto&) -> Result<void*> {
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
  call(dm, [&](auto& provider) {
    auto exported = provider.export_dm(dm);
    if (!exported) return exported.error().code;
    fd = exported->release();
    return 0;
  });
  return fd;
}

VERBENA_NEWER_ABI(provider::DmaHandle*, ibv_alloc_dmah, ibv_context* context,
                  const provider::DmaHandleInitAttr* attr) {
  return call(context, {"attr", attr}, [&](auto& provider) { return provider.alloc_dmah(*attr); });
}

VERBENA_NEWER_ABI(int, ibv_dealloc_dmah, provider::DmaHandle* handle) {
  return destroy(handle, [&](auto& provider) { return provider.dealloc_dmah(handle); });
}

// ---- completion counters

// Fills the part of `caps` that the caller's and our headers share, and zeros the rest.
VERBENA_NEWER_ABI(int, _ibv_query_comp_cntr_caps, ibv_context* context, void* caps, size_t size) {
  return call(context, {"caps", caps}, [&](auto& provider) {
    provider::CompletionCounterCaps known{};
    if (const int error = provider.query_comp_cntr_caps(known); error != 0) return error;
    copy_out(caps, size, known);
    return 0;
  });
}

VERBENA_NEWER_ABI(provider::CompletionCounter*, ibv_create_comp_cntr, ibv_context* context,
                  const provider::CompletionCounterInitAttr* attr) {
  return call(context, {"cc_attr", attr}, [&](auto& provider) { return provider.create_comp_cntr(*attr); });
}

VERBENA_NEWER_ABI(int, ibv_destroy_comp_cntr, provider::CompletionCounter* counter) {
  return destroy(counter, [&](auto& provider) { return provider.destroy_comp_cntr(counter); });
}

// The six functions that access one of a counter's two values.
#define ON_VALUE(name, argument, errors, action)                                  \
  VERBENA_NEWER_ABI(int, name, provider::CompletionCounter* counter, argument) {  \
    return call(counter, [&](auto& provider) {                                    \
      std::atomic<uint64_t>& counted = provider.comp_cntr_value(counter, errors); \
      action;                                                                     \
      return 0;                                                                   \
    });                                                                           \
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
  return call(counter, {"attr", attr}, [&](auto& provider) {
    if (owner(qp) == nullptr) return EINVAL;
    if (owner(qp) != &provider) return because(EINVAL, "comp_cntr and qp are of different ibv_contexts");
    if (attr->comp_mask != 0) return because(EOPNOTSUPP, "comp_mask {:#x} is not 0", attr->comp_mask);
    return provider.attach_comp_cntr(qp, counter, attr->op_mask);
  });
}

}  // namespace verbena::verbs::newer
