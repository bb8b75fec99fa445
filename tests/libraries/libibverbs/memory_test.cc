// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include <gtest/gtest.h>

#include "libraries/libibverbs/opened_device.h"
#include "libraries/libibverbs/provider/newer_objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace verbena::fake {

// The C functions, declared with our copies of the structs: the build's headers may lack them.
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, verbs::MrInitAttr* attr) __asm__("ibv_reg_mr_ex");
void* ibv_alloc_buf(ibv_pd* pd, size_t size, verbs::Buffer** buf) __asm__("ibv_alloc_buf");
void ibv_free_buf(verbs::Buffer* buf) __asm__("ibv_free_buf");
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, verbs::Buffer* buf, void* addr, size_t length,
                       int access) __asm__("ibv_reg_buf_mr");
int ibv_export_buf_dmabuf_fd(verbs::Buffer* buf) __asm__("ibv_export_buf_dmabuf_fd");

namespace {

class Memory : public OpenedDevice {
 protected:
  Memory() : pd_(ibv_alloc_pd(context_)) {}
  ~Memory() override { EXPECT_EQ(ibv_dealloc_pd(pd_), 0); }
  static FakeMr& fake_of(ibv_mr* mr) { return *static_cast<FakeMr*>(mr); }

  ibv_pd* pd_;
  char bytes_[64] = {};
};

TEST_F(Memory, ARegionStartsAtItsAddress) {
  ibv_mr* mr = ibv_reg_mr(pd_, bytes_, sizeof bytes_, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(mr->addr, bytes_);
  EXPECT_EQ(fake_of(mr).iova, reinterpret_cast<uintptr_t>(bytes_));
  EXPECT_EQ(fake_of(mr).access, unsigned{IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, ARegionMayStartElsewhere) {
  for (ibv_mr* mr :
       {ibv_reg_mr_iova(pd_, bytes_, 8, 0x5000, 0), ibv_reg_mr_iova2(pd_, bytes_, 8, 0x5000, 0)}) {
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(fake_of(mr).iova, 0x5000U);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

TEST_F(Memory, OptionalAccessFlagsAreDropped) {
  ibv_mr* mr = ibv_reg_mr_iova2(pd_, bytes_, 8, 0, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(fake_of(mr).access, unsigned{IBV_ACCESS_REMOTE_READ});
  ibv_dereg_mr(mr);
}

TEST_F(Memory, RefusalsCarryTheProvidersErrno) {
  fake().refuse_with = EFAULT;
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, bytes_, 8, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(ibv_alloc_pd(context_), nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EFAULT);
  fake().refuse_with = 0;
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, 8, 0, 3, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_reg_mr(nullptr, bytes_, 8, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Memory, ReregistrationChangesWhatItsFlagsName) {
  ibv_mr* mr = ibv_reg_mr(pd_, bytes_, 8, 0);
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(mr->addr, bytes_);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bytes_ + 8, 16, 0), 0);
  EXPECT_EQ(mr->addr, bytes_ + 8);
  EXPECT_EQ(mr->length, 16U);
  EXPECT_EQ(mr->pd, other);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(other);
}

TEST_F(Memory, ReregistrationHasCodesOfItsOwn) {
  ibv_mr* mr = ibv_reg_mr(pd_, bytes_, 8, 0);
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(mr, 8, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT) << "unknown flag";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bytes_, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 8, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ), IBV_REREG_MR_ERR_INPUT);
  fake().refuse_with = EOPNOTSUPP;
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bytes_ + 8, 8, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(mr->addr, bytes_);
  fake().refuse_with = 0;
  ibv_dereg_mr(mr);
}

TEST_F(Memory, ForkNeedsNoPreparation) {
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

TEST_F(Memory, TheExtensibleRegistrationReachesTheOldOnes) {
  verbs::MrInitAttr attr{};
  attr.length = 8;
  attr.access = IBV_ACCESS_REMOTE_WRITE;
  attr.addr = bytes_;
  attr.comp_mask = verbs::kRegMrAddr;
  ibv_mr* mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(fake_of(mr).iova, reinterpret_cast<uintptr_t>(bytes_));
  ibv_dereg_mr(mr);
  attr.comp_mask |= verbs::kRegMrIova;
  attr.iova = 0x77;
  mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(fake_of(mr).iova, 0x77U);
  ibv_dereg_mr(mr);

  errno = 0;
  attr.comp_mask |= verbs::kRegMrDmaHandle;
  EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr) << "dmah is null";
  EXPECT_EQ(errno, EINVAL);
  attr.comp_mask = verbs::kRegMrAddr | 1 << 6;
  EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.comp_mask = verbs::kRegMrIova;
  EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Memory, AllocatedBuffersAreRegisteredWithinTheirBounds) {
  verbs::Buffer* buffer = nullptr;
  auto* base = static_cast<char*>(ibv_alloc_buf(pd_, 5000, &buffer));
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0U);
  ibv_mr* mr = ibv_reg_buf_mr(pd_, buffer, base + 1000, 4000, 0);
  ASSERT_NE(mr, nullptr);
  ibv_dereg_mr(mr);
  errno = 0;
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buffer, base + 1000, 4001, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buffer, base - 1, 10, 0), nullptr);
  ibv_pd* another = ibv_alloc_pd(context_);
  EXPECT_EQ(ibv_reg_buf_mr(another, buffer, base, 10, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_dealloc_pd(another);
  ibv_pd parent{pd_->context, pd_->handle};  // as parent domains do
  provider::LiveObject live;
  live.enter(&parent, fake());
  mr = ibv_reg_buf_mr(&parent, buffer, base, 10, 0);
  EXPECT_NE(mr, nullptr);
  ibv_dereg_mr(mr);
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buffer, base + 1, SIZE_MAX, 0), nullptr);
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  ibv_free_buf(buffer);
}

}  // namespace
}  // namespace verbena::fake
