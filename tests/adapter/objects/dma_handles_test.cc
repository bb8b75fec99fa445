// SPDX-License-Identifier: Apache-2.0
// DMA handles (ibv_alloc_dmah(), ibv_reg_mr_ex()): the checks of the kernel and of mlx5. They have no effect
// on data.
#include <sched.h>

#include "adapter/objects/support/endpoint.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::adapter::testing {

// The C functions, declared with our copies of the structs: the build's headers may lack them.
provider::DmaHandle* alloc_dmah(ibv_context* context,
                                const provider::DmaHandleInitAttr* attr) __asm__("ibv_alloc_dmah");
int dealloc_dmah(provider::DmaHandle* handle) __asm__("ibv_dealloc_dmah");
ibv_mr* reg_mr_ex(ibv_pd* pd, verbs::MrInitAttr* attr) __asm__("ibv_reg_mr_ex");

namespace {

using provider::DmaHandle;
using provider::DmaHandleInitAttr;
using provider::kDmaHandleCpu;
using provider::kDmaHandleHint;
using provider::kDmaHandleMemory;

constexpr uint32_t kAllFields = kDmaHandleCpu | kDmaHandleHint | kDmaHandleMemory;

uint32_t this_processor() {
  return static_cast<uint32_t>(::sched_getcpu());
}

TEST(DmaHandles, AreCheckedAsTheKernelAndMlx5CheckThem) {
  Context context = open_device();
  const struct {
    const char* what;
    DmaHandleInitAttr attr;
    int error;
  } cases[] = {
      {"every field", {kAllFields, this_processor(), 3, 1}, 0},
      {"only the hint", {kDmaHandleHint, 0, 0, 0}, 0},
      {"no hint", {0, 0, 0, 0}, EINVAL},
      {"a hint of three bits", {kDmaHandleHint, 0, 4, 0}, EINVAL},
      {"a processor without a memory type", {kDmaHandleHint | kDmaHandleCpu, this_processor(), 0, 0}, EINVAL},
      {"a memory type without a processor", {kDmaHandleHint | kDmaHandleMemory, 0, 0, 0}, EINVAL},
      {"an unknown memory type", {kAllFields, this_processor(), 0, 2}, EINVAL},
      {"a processor that does not exist", {kAllFields, 0xffff, 0, 0}, EPERM},
      {"a processor beyond all sets", {kAllFields, UINT32_MAX, 0, 0}, EPERM},
      {"an unknown field", {kAllFields | 1 << 3, this_processor(), 0, 0}, EOPNOTSUPP},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.what);
    errno = 0;
    DmaHandle* handle = alloc_dmah(context.get(), &each.attr);
    EXPECT_EQ(handle != nullptr, each.error == 0);
    EXPECT_EQ(errno, each.error);
    if (handle != nullptr) {
      EXPECT_EQ(handle->context, context.get());
      EXPECT_EQ(dealloc_dmah(handle), 0);
      EXPECT_EQ(dealloc_dmah(handle), ENOENT);
    }
  }
  EXPECT_EQ(alloc_dmah(context.get(), nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(dealloc_dmah(nullptr), EINVAL);
}

TEST(DmaHandles, AreHeldByTheRegionsRegisteredWithThem) {
  Context context = open_device(), other = open_device();
  const Pd pd(ibv_alloc_pd(context.get())), foreign(ibv_alloc_pd(other.get()));
  const DmaHandleInitAttr init{kDmaHandleHint, 0, 1, 0};
  DmaHandle* handle = alloc_dmah(context.get(), &init);
  ASSERT_NE(handle, nullptr);
  std::byte bytes[64];
  verbs::MrInitAttr attr{};
  attr.comp_mask = verbs::kRegMrAddr | verbs::kRegMrDmaHandle;
  attr.addr = bytes;
  attr.length = sizeof bytes;
  attr.access = IBV_ACCESS_LOCAL_WRITE;
  attr.dmah = handle;
  ibv_mr* mr = reg_mr_ex(pd.get(), &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(dealloc_dmah(handle), EBUSY);

  EXPECT_EQ(reg_mr_ex(foreign.get(), &attr), nullptr) << "of another context";
  EXPECT_EQ(errno, EINVAL);
  attr.access |= IBV_ACCESS_ON_DEMAND;
  EXPECT_EQ(reg_mr_ex(pd.get(), &attr), nullptr) << "on demand";
  EXPECT_EQ(errno, EINVAL);

  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(dealloc_dmah(handle), 0);
  attr.access = IBV_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(reg_mr_ex(pd.get(), &attr), nullptr) << "gone";
  EXPECT_EQ(errno, EINVAL);
}

TEST(DmaHandles, EndWithTheirContext) {
  ibv_context* context = open_device().release();
  const DmaHandleInitAttr init{kDmaHandleHint, 0, 1, 0};
  DmaHandle* handle = alloc_dmah(context, &init);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(dealloc_dmah(handle), ENOENT);
}

}  // namespace
}  // namespace verbena::adapter::testing
