// SPDX-License-Identifier: Apache-2.0
// All kinds of memory that can be registered, and changes of a registration.
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "base/unique_fd.h"

namespace verbena::adapter::testing {
namespace {

constexpr int kAll = static_cast<int>(kAllAccess);
constexpr size_t kPage = 4096;

// A mapping of any kind, aligned to its pages.
class Mapping {
 public:
  explicit Mapping(size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1,
                   int protection = PROT_READ | PROT_WRITE)
      : at_(::mmap(nullptr, bytes, protection, flags, fd, 0)), bytes_(bytes) {}
  ~Mapping() {
    if (exists()) ::munmap(at_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool exists() const { return at_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(at_); }
  size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data(), bytes_}; }

 private:
  void* at_;
  size_t bytes_;
};

Address at(const Endpoint& endpoint, const ibv_mr& mr, uint64_t address) {
  Address there = endpoint.address();
  there.rkey = mr.rkey;
  there.buffer = address;
  return there;
}

// Writes `bytes` of a's buffer to b's memory with this key. Returns the completion's status.
ibv_wc_status write_to(Pair& pair, const ibv_mr& mr, uint64_t address, size_t bytes = 64) {
  const ibv_sge piece = pair.a.piece(0, bytes);
  EXPECT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, at(pair.b, mr, address)), {&piece, 1}), 0);
  return pair.a.completion().status;
}

uint64_t number(const void* at) {
  return reinterpret_cast<uint64_t>(at);
}

// ---- kinds of memory

// Writes and reads all of the memory with a key of its own.
void expect_usable(const Mapping& memory) {
  Pair pair({.bytes = 1 << 21});
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), memory.size(), kAll));
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  fill_random(pair.a.bytes(), 7);
  ASSERT_EQ(write_to(pair, *mr, number(memory.data()), memory.size()), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory.data(), pair.a.buffer(), memory.size()), 0);
  memory.data()[5] = std::byte{0x77};
  const ibv_sge piece = pair.a.piece(0, memory.size());
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_READ, 2, at(pair.b, *mr, number(memory.data()))),
                             {&piece, 1}),
            0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory.data(), pair.a.buffer(), memory.size()), 0);
}

TEST(MemoryRegion, OfAFileWritesTheFile) {
  const UniqueFd file(::memfd_create("verbena-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 5 * kPage), 0);
  const Mapping memory(5 * kPage, MAP_SHARED, file.get());
  expect_usable(memory);
  std::vector<std::byte> contents(5 * kPage);
  ASSERT_EQ(::pread(file.get(), contents.data(), contents.size(), 0), static_cast<ssize_t>(contents.size()));
  EXPECT_EQ(std::memcmp(contents.data(), memory.data(), contents.size()), 0);
}

TEST(MemoryRegion, OfAPrivateMappingLeavesItsFileAlone) {
  const UniqueFd file(::memfd_create("verbena-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  expect_usable(Mapping(kPage, MAP_PRIVATE, file.get()));
  std::byte first{0xff};
  ASSERT_EQ(::pread(file.get(), &first, 1, 5), 1);
  EXPECT_EQ(first, std::byte{0});
}

TEST(MemoryRegion, OfMemorySharedWithAChild) {
  expect_usable(Mapping(3 * kPage, MAP_SHARED | MAP_ANONYMOUS));
}

TEST(MemoryRegion, OfTransparentHugePages) {
  const Mapping memory(1 << 21);
  ::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  expect_usable(memory);
}

TEST(MemoryRegion, OfHugePages) {
  const Mapping memory(1 << 21, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
  if (!memory.exists()) GTEST_SKIP() << "this machine has no huge pages set aside";
  expect_usable(memory);
}

// The kernel's ib_umem_get() counts pages. An empty region with an offset in its page counts as one page.
TEST(MemoryRegion, MayBeEmptyUnlessItBeginsAPage) {
  Pair pair;
  const Mapping memory(2 * kPage);
  Mr empty(ibv_reg_mr(pair.b.pd.get(), memory.data() + 8, 0, kAll));
  ASSERT_NE(empty, nullptr) << std::strerror(errno);
  EXPECT_EQ(empty->length, 0u);
  EXPECT_EQ(write_to(pair, *empty, number(memory.data()) + 8, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(
      ibv_rereg_mr(empty.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(ibv_reg_mr(pair.b.pd.get(), memory.data(), 0, kAll), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(pair.b.pd.get(), memory.data() + 8, 0, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(::mprotect(memory.data(), kPage, PROT_READ), 0);
  EXPECT_EQ(ibv_reg_mr(pair.b.pd.get(), memory.data() + 8, 0, kAll), nullptr);
  EXPECT_EQ(errno, EFAULT) << "its page cannot be written to";
  EXPECT_EQ(ibv_reg_mr(pair.b.pd.get(), reinterpret_cast<void*>(24), 0, 0), nullptr);
  EXPECT_EQ(errno, EFAULT) << "its page is not there";
}

TEST(MemoryRegion, HasAddressesOfItsOwnChoosing) {
  Pair pair;
  alignas(8) std::byte memory[256]{};
  for (const uint64_t iova : {uint64_t{0}, uint64_t{0x1234'5678'0000}, UINT64_MAX - 255}) {
    SCOPED_TRACE(iova);
    Mr mr(ibv_reg_mr_iova(pair.b.pd.get(), memory, sizeof memory, iova, kAll));
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, memory);
    std::memset(memory, 0, sizeof memory);
    fill_random(pair.a.bytes(), iova);
    ASSERT_EQ(write_to(pair, *mr, iova + 192), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory + 192, pair.a.buffer(), 64), 0);
    EXPECT_EQ(memory[191], std::byte{0});
  }
}

TEST(MemoryRegion, ThatIsZeroBasedBeginsAtAddressZero) {
  Pair pair;
  std::byte memory[256]{};
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory, sizeof memory, kAll | IBV_ACCESS_ZERO_BASED));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(write_to(pair, *mr, 192), IBV_WC_SUCCESS);
  EXPECT_EQ(write_to(pair, *mr, 193), IBV_WC_REM_ACCESS_ERR);
}

// ---- re-registration

TEST(Reregistration, MovesARegionAndKeepsItsKeys) {
  Pair pair;
  Mapping first(kPage);
  Mapping second(2 * kPage);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), first.data(), kPage, kAll));
  const uint32_t rkey = mr->rkey;
  ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), 2 * kPage, 0), 0);
  EXPECT_EQ(mr->rkey, rkey);
  EXPECT_EQ(mr->addr, second.data());
  EXPECT_EQ(mr->length, 2 * kPage);
  fill_random(pair.a.bytes(), 3);
  ASSERT_EQ(write_to(pair, *mr, number(second.data()) + kPage), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(second.data() + kPage, pair.a.buffer(), 64), 0);
  EXPECT_EQ(write_to(pair, *mr, number(first.data())), IBV_WC_REM_ACCESS_ERR);
}

TEST(Reregistration, TakesRightsAway) {
  Pair pair;
  Mapping memory(kPage);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), kPage, kAll));
  ASSERT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_REM_ACCESS_ERR);
}

TEST(Reregistration, GivesRightsWhereTheMemoryAllowsThem) {
  Pair pair;
  Mapping writable(kPage);
  Mapping readable(kPage, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ);
  Mr one(ibv_reg_mr(pair.b.pd.get(), writable.data(), kPage, 0));
  Mr other(ibv_reg_mr(pair.b.pd.get(), readable.data(), kPage, 0));
  EXPECT_EQ(ibv_rereg_mr(other.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(ibv_rereg_mr(one.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll), 0);
  EXPECT_EQ(write_to(pair, *one, number(writable.data())), IBV_WC_SUCCESS);
}

TEST(Reregistration, MovesARegionToAnotherProtectionDomain) {
  Pair pair;
  Mapping memory(kPage);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), kPage, kAll));
  {
    Pd other(ibv_alloc_pd(pair.b.context.get()));
    ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0), 0);
    EXPECT_EQ(mr->pd, other.get());
    EXPECT_EQ(ibv_dealloc_pd(other.get()), EBUSY) << "it has a region now";
    ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_PD, pair.b.pd.get(), nullptr, 0, 0), 0);
  }
  ASSERT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_SUCCESS);
  Pd other(ibv_alloc_pd(pair.b.context.get()));
  ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0), 0);
  EXPECT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_REM_ACCESS_ERR);
  mr.reset();
}

TEST(Reregistration, ChangesEverythingAtOnce) {
  Pair pair;
  Mapping first(kPage);
  Mapping second(kPage);
  Pd other(ibv_alloc_pd(pair.b.context.get()));
  Mr mr(ibv_reg_mr(other.get(), first.data(), kPage, 0));
  ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_FLAGS_SUPPORTED, pair.b.pd.get(), second.data(), kPage, kAll),
            0);
  EXPECT_EQ(write_to(pair, *mr, number(second.data())), IBV_WC_SUCCESS);
}

TEST(Reregistration, LeavesTheRegionAsItWasWhenRefused) {
  Pair pair;
  Context stranger = open_device();
  Pd foreign(ibv_alloc_pd(stranger.get()));
  Mapping memory(kPage);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), kPage, kAll));
  const struct {
    const char* what;
    int flags;
    ibv_pd* pd;
    void* addr;
    int access;
    int error;
  } cases[] = {
      {"nothing to change", 0, nullptr, nullptr, 0, EINVAL},
      {"a protection domain of another context", IBV_REREG_MR_CHANGE_PD, foreign.get(), nullptr, 0, EINVAL},
      {"memory that is not there", IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, reinterpret_cast<void*>(kPage),
       0, EFAULT},
      {"rights that do not go together", IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr,
       IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {"rights that do not exist", IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 1 << 19, EINVAL},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(ibv_rereg_mr(mr.get(), c.flags, c.pd, c.addr, kPage, c.access), IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, c.error);
    EXPECT_EQ(mr->pd, pair.b.pd.get());
    EXPECT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_SUCCESS);
  }
}

// ---- on-demand paging

TEST(OnDemandMemory, IsRegisteredWhetherItIsThereOrNot) {
  Pair pair;
  Mapping memory(kPage, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_NONE);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), kPage, kAll | IBV_ACCESS_ON_DEMAND));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(::mprotect(memory.data(), kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_SUCCESS) << "it has come";
  ASSERT_EQ(::mprotect(memory.data(), kPage, PROT_NONE), 0);
  EXPECT_EQ(write_to(pair, *mr, number(memory.data())), IBV_WC_REM_ACCESS_ERR) << "and gone";
}

TEST(OnDemandMemory, IsAllMemoryWhenImplicit) {
  Pair pair;
  Mr here(ibv_reg_mr(pair.a.pd.get(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND));
  Mr there(ibv_reg_mr(pair.b.pd.get(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND));
  ASSERT_NE(here, nullptr);
  ASSERT_NE(there, nullptr);
  std::byte from[100];
  std::byte to[100]{};
  fill_random(from, 4);
  const ibv_sge piece{number(from), sizeof from, here->lkey};
  ASSERT_EQ(
      pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, at(pair.b, *there, number(to))), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from, to, sizeof to), 0);
}

// A peer may name any address: it gets an error, and the process survives.
TEST(OnDemandMemory, RefusesAddressesWhereNothingIs) {
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{1}, uint64_t{kPage}, uint64_t{1} << 47, uint64_t{0x8000'0000'0000'0000},
        uint64_t{0xffff'ffff'ff60'0000}, UINT64_MAX - 10}) {
    SCOPED_TRACE(address);
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      Pair pair;
      Mr all(ibv_reg_mr(pair.b.pd.get(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND));
      const ibv_sge piece = pair.a.piece(0, 16);
      ASSERT_EQ(pair.a.post_send(remote_request(opcode, 1, at(pair.b, *all, address)), {&piece, 1}), 0);
      EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
    }
  }
}

TEST(OnDemandMemory, OfAllAddressesHasNeitherHugePagesNorAnotherBase) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  EXPECT_EQ(ibv_reg_mr(pd.get(), nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr_iova(pd.get(), nullptr, SIZE_MAX, kPage, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(OnDemandMemory, IsSaidToBeThere) {
  Context context = open_device();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.odp_caps.general_caps, uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  constexpr uint32_t kAllOperations = 0xff;  // FLUSH and ATOMIC WRITE are the last two bits
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, kAllOperations);
  EXPECT_EQ(attr.xrc_odp_caps, kAllOperations);
  EXPECT_NE(attr.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_SEND, 0u);
}

class Advice : public ::testing::Test {
 protected:
  int advise(ibv_advise_mr_advice advice, const ibv_sge& sge, uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) {
    ibv_sge list = sge;
    return ibv_advise_mr(pd.get(), advice, flags, &list, 1);
  }
  bool is_present() const {
    unsigned char resident = 0;
    return ::mincore(memory.data(), kPage, &resident) == 0 && (resident & 1) != 0;
  }

  Context context = open_device();
  Pd pd{ibv_alloc_pd(context.get())};
  const Mapping memory{2 * kPage};
  Mr mr{ibv_reg_mr(pd.get(), memory.data(), 2 * kPage, kAll | IBV_ACCESS_ON_DEMAND)};
  const ibv_sge all{number(memory.data()), 2 * kPage, mr->lkey};
};

TEST_F(Advice, ToPrefetchBringsPagesIn) {
  EXPECT_FALSE(is_present());
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, all), 0);
  EXPECT_FALSE(is_present());
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, all), 0);
  EXPECT_TRUE(is_present());
}

TEST_F(Advice, MayBeTakenLater) {
  for (const auto advice : {IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT}) {
    EXPECT_EQ(advise(advice, all, 0), 0);
  }
}

TEST_F(Advice, IsCheckedAsTheKernelDoes) {
  const auto prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
  const auto write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(3), all), EOPNOTSUPP);
  EXPECT_EQ(advise(prefetch, all, 2), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd.get(), prefetch, 0, nullptr, 0), EINVAL);
  EXPECT_EQ(advise(prefetch, {all.addr, all.length + 1, all.lkey}), EFAULT);
  EXPECT_EQ(advise(prefetch, {all.addr, all.length + 1, all.lkey}, 0), 0) << "nobody waits for this one";
  EXPECT_EQ(advise(prefetch, {all.addr, all.length, all.lkey + 1}), ENOENT);
  Mr pinned(ibv_reg_mr(pd.get(), memory.data(), kPage, kAll));
  EXPECT_EQ(advise(prefetch, {all.addr, kPage, pinned->lkey}), ENOENT) << "not on demand";
  Mr readable(ibv_reg_mr(pd.get(), memory.data(), kPage, IBV_ACCESS_ON_DEMAND));
  EXPECT_EQ(advise(write, {all.addr, kPage, readable->lkey}), EPERM);
  EXPECT_EQ(advise(prefetch, {all.addr, kPage, readable->lkey}), 0);
  Pd other(ibv_alloc_pd(context.get()));
  Mr others(ibv_reg_mr(other.get(), memory.data(), kPage, kAll | IBV_ACCESS_ON_DEMAND));
  EXPECT_EQ(advise(prefetch, {all.addr, kPage, others->lkey}), EPERM);
  ASSERT_EQ(::mprotect(memory.data(), kPage, PROT_NONE), 0);
  EXPECT_EQ(advise(prefetch, all), EFAULT) << "nothing is there";
}

// ---- null regions

TEST(NullRegion, GivesZerosAndTakesAnything) {
  Pair pair;
  Mr null(ibv_alloc_null_mr(pair.a.pd.get()));
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(null->addr, nullptr);
  EXPECT_EQ(null->length, SIZE_MAX);
  fill_random(pair.b.bytes(), 1);
  const ibv_sge piece{0x1234, 5000, null->lkey};
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_READ, 1, pair.b.address()), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS) << "dropped";
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 2, pair.b.address()), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(pair.b.buffer()[i], std::byte{0}) << i;
  EXPECT_NE(pair.b.buffer()[5000], std::byte{0});
}

TEST(NullRegion, SkipsPartsOfAMessage) {
  Pair pair;
  Mr null(ibv_alloc_null_mr(pair.b.pd.get()));
  fill_random(pair.a.bytes(), 2);
  const ibv_sge receive[] = {pair.b.piece(0, 10), {0, 80, null->lkey}, pair.b.piece(10, 10)};
  ASSERT_EQ(pair.b.post_receive(1, receive), 0);
  const ibv_sge piece = pair.a.piece(0, 100);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  ASSERT_EQ(pair.b.completion().byte_len, 100u);
  EXPECT_EQ(std::memcmp(pair.b.buffer(), pair.a.buffer(), 10), 0);
  EXPECT_EQ(std::memcmp(pair.b.buffer() + 10, pair.a.buffer() + 90, 10), 0);
}

TEST(NullRegion, IsNotForPeers) {
  Pair pair;
  Mr null(ibv_alloc_null_mr(pair.b.pd.get()));
  EXPECT_EQ(null->rkey, 0u);
  ibv_mr guessed = *null;
  guessed.rkey = null->lkey;
  EXPECT_EQ(write_to(pair, guessed, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST(NullRegion, CannotBeReregistered) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  Mr null(ibv_alloc_null_mr(pd.get()));
  EXPECT_NE(ibv_rereg_mr(null.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
