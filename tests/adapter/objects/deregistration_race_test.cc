// SPDX-License-Identifier: Apache-2.0
// A process deregisters and registers memory again and again while eight others read and write it. They read
// only contents from times when it was registered, and write nothing afterwards.
//
// VERBENA_DEREGISTRATIONS=1000000 sets the number of rounds (default: some thousands).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <thread>

#include <sys/mman.h>

#include "adapter/objects/support/crowd_at_memory.h"
#include "adapter/objects/support/route.h"
#include "base/time.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kBytes = CrowdAtMemory::kBytes;
constexpr std::byte kRegistered = CrowdAtMemory::kValid;
constexpr std::byte kOwn = CrowdAtMemory::kOwn;

TEST(DeregistrationRace, NobodyReadsOrWritesMemoryThatIsNoMoreRegistered) {
  use_route(usual_route());
  CrowdAtMemory crowd;
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const std::span bytes(memory, kBytes);
  const uint64_t wanted = times_to_take_back("VERBENA_DEREGISTRATIONS");
  const TimePoint began = MonotonicClock::now();
  uint64_t changed = 0;
  crowd.start(reinterpret_cast<uintptr_t>(memory));
  for (uint64_t count = 0; count < wanted && !HasFailure(); ++count) {
    std::ranges::fill(bytes, kRegistered);
    Mr mr(ibv_reg_mr(crowd.pd(), memory, kBytes, static_cast<int>(kAllAccess)));
    ASSERT_NE(mr, nullptr);
    crowd.set_key(mr->rkey);
    // Sometimes lets the others run, on a machine where not all of them run at once.
    if (count % 16 == 0) std::this_thread::yield();
    mr.reset();
    std::ranges::fill(bytes, kOwn);
    if (count % 16 == 8) std::this_thread::yield();
    if (!are(bytes, kOwn)) ++changed;
  }
  const CrowdAtMemory::Tally tally = crowd.end();
  const double seconds = std::chrono::duration<double>(MonotonicClock::now() - began).count();
  std::printf("%llu deregistrations in %.1f s, beside %llu READs, %llu WRITEs and %llu that were refused\n",
              static_cast<unsigned long long>(wanted), seconds, static_cast<unsigned long long>(tally.reads),
              static_cast<unsigned long long>(tally.writes), static_cast<unsigned long long>(tally.refused));
  EXPECT_EQ(changed, 0u) << "written after the deregistration";
  EXPECT_EQ(tally.wrong, 0u) << "read after the deregistration";
  EXPECT_GT(tally.reads, 0u);
  EXPECT_GT(tally.writes, 0u);
  EXPECT_GT(tally.refused, 0u);
  ::munmap(memory, kBytes);
}

}  // namespace
}  // namespace verbena::adapter::testing
