// SPDX-License-Identifier: Apache-2.0
// Device memory: allocation, copies, registration, and isolation between allocations.
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"

namespace verbena::adapter::testing {

int export_dmabuf_fd(ibv_dm* dm) __asm__("ibv_dm_export_dmabuf_fd");  // the build's headers may lack it

namespace {

constexpr unsigned kZeroBased = kAllAccess | IBV_ACCESS_ZERO_BASED;

ibv_dm* allocate(ibv_context* context, size_t length, uint32_t alignment = 0, uint32_t mask = 0) {
  ibv_alloc_dm_attr attr{length, alignment, mask};
  return ibv_alloc_dm(context, &attr);
}

struct Free {
  void operator()(ibv_dm* dm) const { EXPECT_EQ(ibv_free_dm(dm), 0); }
};
using Dm = std::unique_ptr<ibv_dm, Free>;

uint64_t max_dm_size(ibv_context* context) {
  ibv_device_attr_ex attr{};
  EXPECT_EQ(ibv_query_device_ex(context, nullptr, &attr), 0);
  return attr.max_dm_size;
}

class DeviceMemory : public ::testing::Test {
 protected:
  Context context = open_device();
  Pd pd{ibv_alloc_pd(context.get())};
};

TEST_F(DeviceMemory, KeepsWhatIsCopiedThere) {
  Dm dm(allocate(context.get(), 10'000));
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(dm->context, context.get());
  std::vector<std::byte> in(2000);
  std::vector<std::byte> out(2000, std::byte{1});
  ASSERT_EQ(ibv_memcpy_from_dm(out.data(), dm.get(), 8000, 2000), 0);
  EXPECT_EQ(in, out) << "it begins with zeros";
  fill_random(in, 1);
  ASSERT_EQ(ibv_memcpy_to_dm(dm.get(), 8000, in.data(), 2000), 0);
  ASSERT_EQ(ibv_memcpy_from_dm(out.data(), dm.get(), 8000, 2000), 0);
  EXPECT_EQ(in, out);
}

TEST_F(DeviceMemory, IsCopiedInWordsInsideItsBounds) {
  Dm dm(allocate(context.get(), 100));
  std::byte bytes[200];
  const struct {
    uint64_t offset;
    size_t length;
    int error;
  } cases[] = {{0, 100, 0},          {96, 4, 0},       {100, 0, 0},
               {3, 4, EINVAL},       {4, 3, EINVAL},   {97, 4, EFAULT},
               {0, 104, EFAULT},     {104, 4, EFAULT}, {UINT64_MAX - 3, 8, EFAULT},
               {0, SIZE_MAX, EFAULT}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.offset);
    EXPECT_EQ(ibv_memcpy_to_dm(dm.get(), c.offset, bytes, c.length), c.error);
    EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm.get(), c.offset, c.length), c.error);
  }
}

TEST_F(DeviceMemory, IsRefusedWhereItCannotBe) {
  const struct {
    const char* what;
    size_t length;
    uint32_t alignment;
    uint32_t mask;
    int error;
  } cases[] = {
      {"nothing", 0, 0, 0, EINVAL},
      {"more than there is", max_dm_size(context.get()) + 1, 0, 0, EINVAL},
      {"more alignment than there is", 64, 13, 0, EINVAL},
      {"an unknown mask", 64, 0, 1, EINVAL},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(allocate(context.get(), c.length, c.alignment, c.mask), nullptr);
    EXPECT_EQ(errno, c.error);
  }
}

TEST_F(DeviceMemory, IsAsMuchAsTheDeviceSays) {
  const uint64_t all = max_dm_size(context.get());
  ASSERT_GT(all, 0u);
  Dm half(allocate(context.get(), all / 2));
  Dm rest(allocate(context.get(), all / 2));
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(allocate(context.get(), 4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  half.reset();
  Dm again(allocate(context.get(), all / 2));
  EXPECT_NE(again, nullptr);
}

TEST_F(DeviceMemory, IsZeroedForItsNextOwner) {
  std::vector<std::byte> bytes(1 << 16, std::byte{0x5a});
  for (int round = 0; round < 3; ++round) {
    Dm dm(allocate(context.get(), bytes.size()));
    std::vector<std::byte> found(bytes.size());
    ASSERT_EQ(ibv_memcpy_from_dm(found.data(), dm.get(), 0, found.size()), 0);
    EXPECT_EQ(found, std::vector<std::byte>(bytes.size()));
    ASSERT_EQ(ibv_memcpy_to_dm(dm.get(), 0, bytes.data(), bytes.size()), 0);
  }
}

TEST_F(DeviceMemory, IsRegisteredFromZero) {
  Dm dm(allocate(context.get(), 100));
  const struct {
    const char* what;
    uint64_t offset;
    size_t length;
    unsigned access;
    int error;
  } cases[] = {
      {"all of it", 0, 100, kZeroBased, 0},
      {"a part", 10, 90, kZeroBased, 0},
      {"optional rights", 0, 100, kZeroBased | IBV_ACCESS_RELAXED_ORDERING, 0},
      {"not from zero", 0, 100, kAllAccess, EINVAL},
      {"too much", 0, 104, kZeroBased, EINVAL},
      {"beyond its end", 11, 90, kZeroBased, EINVAL},
      {"nothing", 50, 0, kZeroBased, 0},
      {"wrapping around", UINT64_MAX, 2, kZeroBased, EINVAL},
      {"paging on demand", 0, 100, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED, EINVAL},
      {"remote write alone", 0, 100, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED, EINVAL},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    errno = 0;
    Mr mr(ibv_reg_dm_mr(pd.get(), dm.get(), c.offset, c.length, c.access));
    EXPECT_EQ(mr == nullptr ? errno : 0, c.error);
    if (mr == nullptr) continue;
    EXPECT_EQ(mr->addr, nullptr);
    EXPECT_EQ(ibv_free_dm(dm.get()), EBUSY) << "it is registered";
    EXPECT_NE(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
    EXPECT_EQ(errno, EINVAL);
  }
  Context stranger = open_device();
  Pd foreign(ibv_alloc_pd(stranger.get()));
  EXPECT_EQ(ibv_reg_dm_mr(foreign.get(), dm.get(), 0, 100, kZeroBased), nullptr);
}

TEST_F(DeviceMemory, IsDestroyedWithItsContext) {
  ASSERT_NE(allocate(context.get(), 100), nullptr);
  context.reset(ibv_open_device(context->device));
  pd.release();
}

TEST(DeviceMemoryTraffic, IsReadWrittenAndCountedInByPeers) {
  Pair pair;
  Dm dm(allocate(pair.b.context.get(), 8192));
  Mr mr(ibv_reg_dm_mr(pair.b.pd.get(), dm.get(), 4096, 4096, kZeroBased));
  ASSERT_NE(mr, nullptr);
  Address there = pair.b.address();
  there.buffer = 0;
  there.rkey = mr->rkey;
  fill_random(pair.a.bytes(), 2);
  const auto run = [&](ibv_send_wr request, ibv_sge piece) {
    EXPECT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
    return pair.a.completion().status;
  };
  ASSERT_EQ(run(remote_request(IBV_WR_RDMA_WRITE, 1, there), pair.a.piece(0, 4096)), IBV_WC_SUCCESS);
  std::vector<std::byte> found(4096);
  ASSERT_EQ(ibv_memcpy_from_dm(found.data(), dm.get(), 4096, 4096), 0);
  EXPECT_EQ(std::memcmp(found.data(), pair.a.buffer(), 4096), 0);

  uint64_t before;
  std::memcpy(&before, pair.a.buffer() + 8, sizeof before);
  ibv_send_wr add = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, there, 8);
  add.wr.atomic.compare_add = 5;
  ASSERT_EQ(run(add, pair.a.piece(16, 8)), IBV_WC_SUCCESS);
  ASSERT_EQ(run(remote_request(IBV_WR_RDMA_READ, 3, there, 8), pair.a.piece(0, 8)), IBV_WC_SUCCESS);
  uint64_t after;
  std::memcpy(&after, pair.a.buffer(), sizeof after);
  EXPECT_EQ(after, before + 5);
  EXPECT_EQ(run(remote_request(IBV_WR_RDMA_READ, 4, there, 4093), pair.a.piece(0, 4)), IBV_WC_REM_ACCESS_ERR);
}

TEST(DeviceMemoryTraffic, SendsAndReceives) {
  Pair pair;
  Dm from(allocate(pair.a.context.get(), 3000));
  Dm to(allocate(pair.b.context.get(), 3000));
  Mr source(ibv_reg_dm_mr(pair.a.pd.get(), from.get(), 0, 3000, kZeroBased));
  Mr target(ibv_reg_dm_mr(pair.b.pd.get(), to.get(), 0, 3000, kZeroBased));
  fill_random(pair.a.bytes(), 3);
  ASSERT_EQ(ibv_memcpy_to_dm(from.get(), 0, pair.a.buffer(), 3000), 0);
  const ibv_sge send{0, 3000, source->lkey};
  ASSERT_EQ(pair.b.post_receive(1, ibv_sge{0, 3000, target->lkey}), 0);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&send, 1}), 0);
  ASSERT_EQ(pair.b.completion().byte_len, 3000u);
  ASSERT_EQ(ibv_memcpy_from_dm(pair.b.buffer(), to.get(), 0, 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.buffer(), pair.b.buffer(), 3000), 0);
}

// Memory that the parent allocates, the child does not get, and vice versa. With a kernel device both would
// share one file.
TEST(DeviceMemoryAfterFork, IsSharedOutBetweenParentAndChild) {
  Context context = open_device();
  Dm ours(allocate(context.get(), 4096));
  const uint32_t mark = 0x12345678;
  ASSERT_EQ(ibv_memcpy_to_dm(ours.get(), 0, &mark, 4), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const uint32_t other = 0x9abcdef0;
    ibv_dm* theirs = allocate(context.get(), 4096);
    const bool written = theirs != nullptr && ibv_memcpy_to_dm(theirs, 0, &other, 4) == 0;
    uint32_t seen = 0;
    const bool read = ibv_memcpy_from_dm(&seen, ours.get(), 0, 4) == 0;
    ::_exit(written && read && seen == mark && theirs->handle != ours->handle ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  uint32_t seen = 0;
  ASSERT_EQ(ibv_memcpy_from_dm(&seen, ours.get(), 0, 4), 0);
  EXPECT_EQ(seen, mark);
}

// A child that closes its inherited context must not free the parent's memory.
TEST(DeviceMemoryAfterFork, OutlivesAChildThatCloses) {
  Context context = open_device();
  Dm ours(allocate(context.get(), 4096));
  const uint32_t mark = 0x12345678;
  ASSERT_EQ(ibv_memcpy_to_dm(ours.get(), 0, &mark, 4), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ibv_close_device(context.get()));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  uint32_t seen = 0;
  ASSERT_EQ(ibv_memcpy_from_dm(&seen, ours.get(), 0, 4), 0);
  EXPECT_EQ(seen, mark);
}

// SIGXFSZ of the file size limit would kill the process.
TEST(DeviceMemoryLimits, AreNoDangerToAProcessThatMayWriteNoLargeFiles) {
  isolated([] {
    const rlimit small{4096, 4096};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    Context context = open_device();
    EXPECT_EQ(max_dm_size(context.get()), 0u);
    EXPECT_EQ(allocate(context.get(), 4), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    Pd pd(ibv_alloc_pd(context.get()));
    EXPECT_NE(pd, nullptr);
  });
}

// The kernel's udmabuf device makes dma-bufs of memfds, if this process may open it.
TEST_F(DeviceMemory, IsExportedAsADmaBufWhereTheKernelMakesOne) {
  Dm dm(allocate(context.get(), 8192));
  ASSERT_NE(dm, nullptr);
  const uint32_t word = 0x12345678;
  ASSERT_EQ(ibv_memcpy_to_dm(dm.get(), 4096, &word, sizeof word), 0);
  errno = 0;
  const UniqueFd exported(export_dmabuf_fd(dm.get()));
  const int error = errno;
  if (::access("/dev/udmabuf", R_OK | W_OK) != 0) {
    EXPECT_EQ(exported.get(), -1);
    EXPECT_EQ(error, EOPNOTSUPP);
    return;
  }
  ASSERT_GE(exported.get(), 0) << std::strerror(error);
  ibv_mr* mr = ibv_reg_dmabuf_mr(pd.get(), 0, 8192, 0, exported.get(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  void* mapped = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, exported.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(mapped) + 4096, &word, sizeof word), 0);
  ::munmap(mapped, 8192);
}

TEST(DeviceMemoryExport, NeedsDeviceMemory) {
  EXPECT_EQ(export_dmabuf_fd(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
