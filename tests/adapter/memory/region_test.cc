// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/region.h"

#include <csignal>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

int code_of(const Result<void>& result) {
  return result ? 0 : result.error().code;
}

TEST(RegionAt, AnswersPlacesInside) {
  std::byte memory[100];
  const Opening region{.base = memory, .iova = 0x1000, .length = 100};
  EXPECT_EQ(region.at(0x1000, 100), memory);
  EXPECT_EQ(region.at(0x1063, 1), memory + 99);
  EXPECT_EQ(region.at(0x1064, 0), memory + 100);
}

TEST(RegionAt, AnswersNothingOutside) {
  std::byte memory[100];
  const Opening region{.base = memory, .iova = 0x1000, .length = 100};
  EXPECT_EQ(region.at(0xfff, 1), nullptr);
  EXPECT_EQ(region.at(0xfff, 0), nullptr);
  EXPECT_EQ(region.at(0x1000, 101), nullptr);
  EXPECT_EQ(region.at(0x1064, 1), nullptr);
  EXPECT_EQ(region.at(0x1065, 0), nullptr);
  EXPECT_EQ(region.at(0x1001, UINT64_MAX), nullptr);
  EXPECT_EQ(region.at(UINT64_MAX, 2), nullptr);
}

TEST(RegionAt, SurvivesARegionAtTheEndOfTheAddresses) {
  std::byte memory[16];
  const Opening region{.base = memory, .iova = UINT64_MAX - 15, .length = 16};
  EXPECT_EQ(region.at(UINT64_MAX, 1), memory + 15);
  EXPECT_EQ(region.at(UINT64_MAX, 2), nullptr);
}

TEST(RegionAt, AnswersAddressesAsTheyAreForARegionOfAllOfThem) {
  std::byte here{};
  const Opening region{.length = UINT64_MAX};
  EXPECT_EQ(region.at(reinterpret_cast<uint64_t>(&here), 1), &here);
  EXPECT_EQ(region.at(UINT64_MAX, 2), nullptr);
}

TEST(NullRegion, ReadsAsZerosAtAnyAddress) {
  Region null;
  ASSERT_TRUE(make_null(null, 1));
  for (const uint64_t address : {uint64_t{0}, uint64_t{12345}, UINT64_MAX - 4096}) {
    const std::byte* at = null.at(address, 4096);
    ASSERT_NE(at, nullptr);
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(at[i], std::byte{0});
  }
  EXPECT_NE(null.at(1, 1u << 30), nullptr);
}

TEST(NullRegion, IsForLocalUseAlone) {
  Region null;
  ASSERT_TRUE(make_null(null, 1));
  EXPECT_TRUE(null.allows_local(IBV_ACCESS_LOCAL_WRITE, 1));
  EXPECT_FALSE(null.allows_local(0, 2));
  for (const unsigned access : {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
    EXPECT_FALSE(null.allows_remote(access, 1, 5));
  }
}

// Both ways to check pages must agree, except where a test says otherwise.
class CheckPages : public testing::TestWithParam<bool> {
 protected:
  static int check(const void* at, uint64_t bytes, bool writable) {
    if (!GetParam()) return code_of(check_pages(at, bytes, writable));
    const auto first = reinterpret_cast<uintptr_t>(at);
    const uintptr_t begin = first & ~(page_size() - 1);
    const uintptr_t end = (first + bytes + page_size() - 1) & ~(page_size() - 1);
    return code_of(touch_pages(begin, end - begin, writable));
  }
};
INSTANTIATE_TEST_SUITE_P(, CheckPages, testing::Bool(),
                         [](const auto& how) { return how.param ? "ByTouch" : "ByMadvise"; });

TEST_P(CheckPages, AcceptsWhatIsMappedAtAnyAlignment) {
  const Pages pages = Pages::anonymous(3);
  EXPECT_EQ(check(pages.data(), pages.bytes(), true), 0);
  EXPECT_EQ(check(pages.data() + 1, 1, true), 0);
  EXPECT_EQ(check(pages.data() + page_size() - 1, 2, true), 0);
  EXPECT_EQ(check(pages.data(), pages.bytes(), false), 0);
}

TEST_P(CheckPages, AcceptsLengthZeroAnywhere) {
  EXPECT_EQ(check(nullptr, 0, true), 0);
}

TEST_P(CheckPages, RefusesAHoleWhereverItIs) {
  const Pages pages = Pages::anonymous(5);
  pages.unmap(2);
  EXPECT_EQ(check(pages.page(0), 2 * page_size(), true), 0);
  EXPECT_EQ(check(pages.page(3), 2 * page_size(), true), 0);
  EXPECT_EQ(check(pages.page(0), 2 * page_size() + 1, true), EFAULT);
  EXPECT_EQ(check(pages.page(3) - 1, 10, true), EFAULT);
  EXPECT_EQ(check(pages.page(0), pages.bytes(), false), EFAULT);
}

TEST_P(CheckPages, RefusesNullAndAddressesOfTheKernel) {
  EXPECT_EQ(check(nullptr, 1, false), EFAULT);
  EXPECT_EQ(check(reinterpret_cast<void*>(uintptr_t{0xffff'8000'0000'0000}), 4096, false), EFAULT);
}

TEST_P(CheckPages, RefusesPagesWithoutRights) {
  const Pages pages = Pages::anonymous(2, PROT_NONE);
  EXPECT_EQ(check(pages.data(), 1, false), EFAULT);
  pages.remove_rights(1, PROT_READ);
  EXPECT_EQ(check(pages.page(1), 1, false), 0);
  EXPECT_EQ(check(pages.page(1), 1, true), EFAULT);
}

TEST_P(CheckPages, RefusesWritingIntoAReadOnlySharedFile) {
  const UniqueFd file = memory_file(1);
  const Pages shared = Pages::of_file(file.get(), 1, PROT_READ, MAP_SHARED);
  EXPECT_EQ(check(shared.data(), shared.bytes(), false), 0);
  EXPECT_EQ(check(shared.data(), shared.bytes(), true), EFAULT);
}

TEST_P(CheckPages, AcceptsSharedAndPrivateFiles) {
  const UniqueFd file = memory_file(2);
  const Pages shared = Pages::of_file(file.get(), 2, PROT_READ | PROT_WRITE, MAP_SHARED);
  const Pages own = Pages::of_file(file.get(), 2, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  EXPECT_EQ(check(shared.data(), shared.bytes(), true), 0);
  EXPECT_EQ(check(own.data(), own.bytes(), true), 0);
}

TEST_P(CheckPages, RefusesWhatLiesBeyondTheEndOfTheFile) {
  const UniqueFd file = memory_file(1);
  const Pages pages = Pages::of_file(file.get(), 3, PROT_READ | PROT_WRITE, MAP_SHARED);
  EXPECT_EQ(check(pages.data(), page_size(), true), 0);
  EXPECT_EQ(check(pages.data(), pages.bytes(), true), EFAULT);
  EXPECT_EQ(check(pages.data(), pages.bytes(), false), EFAULT);
}

TEST_P(CheckPages, BringsPagesInAndKeepsTheirContents) {
  const Pages pages = Pages::anonymous(64);
  pages.page(7)[3] = std::byte{9};
  ASSERT_EQ(check(pages.data(), pages.bytes(), true), 0);
  unsigned char resident[64];
  ASSERT_EQ(mincore(pages.data(), pages.bytes(), resident), 0);
  for (unsigned char in : resident) EXPECT_EQ(in & 1, 1);
  EXPECT_EQ(pages.page(7)[3], std::byte{9});
}

TEST_P(CheckPages, ChecksTransparentHugePages) {
  const Pages pages = Pages::anonymous(16 << 20 >> 12);
  madvise(pages.data(), pages.bytes(), MADV_HUGEPAGE);
  EXPECT_EQ(check(pages.data() + 5, pages.bytes() - 5, true), 0);
}

TEST_P(CheckPages, WorksInAThreadThatBlocksEverything) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  int code = 0;
  std::thread thread([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    code = check(pages.data(), 1, true);
  });
  thread.join();
  EXPECT_EQ(code, EFAULT);
}

TEST(CheckPagesRange, RefusesRangesThatWrap) {
  std::byte here{};
  EXPECT_EQ(code_of(check_pages(&here, UINT64_MAX, false)), EINVAL);
  EXPECT_EQ(code_of(check_pages(reinterpret_cast<void*>(UINTPTR_MAX), 2, false)), EINVAL);
  EXPECT_EQ(code_of(check_pages(reinterpret_cast<void*>(UINTPTR_MAX), 1, false)), EFAULT);
  EXPECT_EQ(code_of(check_pages(reinterpret_cast<void*>(UINTPTR_MAX), 0, false)), 0);
}

// A range larger than the memory must give an error, not end the process.
TEST(CheckPagesRange, RefusesHugeRangesThatAreMostlyHoles) {
  const Pages pages = Pages::anonymous(1);
  EXPECT_EQ(code_of(check_pages(pages.data(), uint64_t{1} << 46, false)), EFAULT);
}

}  // namespace
}  // namespace verbena::memory
