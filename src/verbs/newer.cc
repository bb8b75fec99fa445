// SPDX-License-Identifier: Apache-2.0
// Calls that came after the headers we build with (IBVERBS_1.15 to 1.18).
#include "verbs/newer.h"

#include <cstdlib>

#include <unistd.h>

#include "verbs/abi.h"

using namespace verbena::verbs;
using verbena::fail;
using verbena::Result;

namespace {

constexpr uint64_t kKnownMask = kRegMrIova | kRegMrAddr | kRegMrFd | kRegMrFdOffset | kRegMrBuf;

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

// The range must lie within the buffer, and the buffer belong to this protection domain.
bool fits_its_buffer(const ibv_pd* pd, const MrInitAttr& attr) {
  if ((attr.comp_mask & kRegMrAddr) == 0 || (attr.comp_mask & (kRegMrFd | kRegMrFdOffset)) != 0) return false;
  if (attr.buf == nullptr) return false;
  if (attr.buf->context != pd->context || attr.buf->pd_handle != pd->handle) return false;
  const auto base = reinterpret_cast<uintptr_t>(attr.buf->addr);
  const auto from = reinterpret_cast<uintptr_t>(attr.addr);
  return from >= base && from - base <= attr.buf->size && attr.length <= attr.buf->size - (from - base);
}

}  // namespace

VERBENA_ABI ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, MrInitAttr* attr) {
  return answer_pointer([&]() -> Result<ibv_mr*> {
    if (owner(pd) == nullptr) return fail(EINVAL);
    if (attr == nullptr) return fail(is_null("mr_init_attr"));
    if ((attr->comp_mask & ~kKnownMask) != 0) return fail(EOPNOTSUPP);
    if ((attr->comp_mask & kRegMrBuf) != 0 && !fits_its_buffer(pd, *attr))
      return fail(
          because(EINVAL, "addr and length are not within buf, or buf is of another protection domain"));
    return (attr->comp_mask & kRegMrFd) != 0 ? register_by_fd(pd, *attr) : register_by_address(pd, *attr);
  });
}

VERBENA_ABI void* ibv_alloc_buf(ibv_pd* pd, size_t size, Buffer** buf) {
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

VERBENA_ABI void ibv_free_buf(Buffer* buf) {
  if (buf == nullptr) return;
  std::free(buf->addr);
  delete buf;
}

VERBENA_ABI ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, Buffer* buf, void* addr, size_t length, int access) {
  MrInitAttr attr{};
  attr.length = length;
  attr.access = access;
  attr.comp_mask = kRegMrBuf | kRegMrAddr;
  attr.addr = addr;
  attr.buf = buf;
  return ibv_reg_mr_ex(pd, &attr);
}

// Our buffers are ordinary memory.
VERBENA_ABI int ibv_export_buf_dmabuf_fd(Buffer*) {
  return answer_minus_one([] { return ENODATA; });
}

VERBENA_ABI int ibv_dm_export_dmabuf_fd(ibv_dm*) {
  return answer_minus_one([] { return EOPNOTSUPP; });
}

static Result<void*> not_supported() {
  return fail(EOPNOTSUPP);
}

// DMA handles steer a PCIe device's writes, completion counters live in hardware: neither exists here.
VERBENA_ABI void* ibv_alloc_dmah(ibv_context*, void*) {
  return answer_pointer(not_supported);
}

VERBENA_ABI int ibv_dealloc_dmah(void*) {
  return answer_code([] { return EOPNOTSUPP; });
}

VERBENA_ABI void* ibv_create_comp_cntr(ibv_context*, void*) {
  return answer_pointer(not_supported);
}

#define REFUSED(name, ...)                         \
  VERBENA_ABI int name(__VA_ARGS__) {              \
    return answer_code([] { return EOPNOTSUPP; }); \
  }
REFUSED(_ibv_query_comp_cntr_caps, ibv_context*, void*, size_t)
REFUSED(ibv_destroy_comp_cntr, void*)
REFUSED(ibv_set_comp_cntr, void*, uint64_t)
REFUSED(ibv_set_err_comp_cntr, void*, uint64_t)
REFUSED(ibv_inc_comp_cntr, void*, uint64_t)
REFUSED(ibv_inc_err_comp_cntr, void*, uint64_t)
REFUSED(ibv_read_comp_cntr, void*, uint64_t*)
REFUSED(ibv_read_err_comp_cntr, void*, uint64_t*)
REFUSED(ibv_qp_attach_comp_cntr, ibv_qp*, void*, void*)
#undef REFUSED
