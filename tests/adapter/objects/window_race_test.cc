// SPDX-License-Identifier: Apache-2.0
// A process binds and invalidates memory windows with requests of its QPs, again and again, while eight
// others read and write through them. Once an invalidation has completed, no process accesses the memory.
//
// VERBENA_INVALIDATIONS=1000000 sets the number of rounds (default: some thousands).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <thread>

#include <sys/mman.h>

#include "adapter/objects/support/crowd_at_memory.h"
#include "adapter/objects/support/route.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kBytes = CrowdAtMemory::kBytes;
constexpr size_t kProcesses = CrowdAtMemory::kProcesses;
constexpr unsigned kRights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

struct Dealloc {
  void operator()(ibv_mw* mw) const { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }
};
using Mw = std::unique_ptr<ibv_mw, Dealloc>;

class WindowRace : public ::testing::Test {
 protected:
  WindowRace() {
    use_route(usual_route());
    crowd = std::make_unique<CrowdAtMemory>();
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    bytes = {static_cast<std::byte*>(at), kBytes};
    mr.reset(ibv_reg_mr(crowd->pd(), at, kBytes, static_cast<int>(kBindable)));
    EXPECT_NE(mr, nullptr);
  }
  ~WindowRace() override {
    mr.reset();
    ::munmap(bytes.data(), kBytes);
  }

  Mw make(ibv_mw_type type) { return Mw(ibv_alloc_mw(crowd->pd(), type)); }
  // Returns a request that binds `mw` with a new key; with length 0, to nothing.
  ibv_send_wr binding(ibv_mw& mw, size_t length = kBytes) const {
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    mw.rkey = ibv_inc_rkey(mw.rkey);
    request.bind_mw = {&mw, mw.rkey, {mr.get(), reinterpret_cast<uintptr_t>(bytes.data()), length, kRights}};
    return request;
  }
  static ibv_send_wr invalidation(const ibv_mw& mw) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_LOCAL_INV;
    request.invalidate_rkey = mw.rkey;
    return request;
  }

  // Calls give() and take() in turn. When take() returns, the invalidation has completed.
  template <class Give, class Take>
  void race(Give give, Take take) {
    const uint64_t wanted = times_to_take_back("VERBENA_INVALIDATIONS");
    uint64_t changed = 0;
    crowd->start(reinterpret_cast<uintptr_t>(bytes.data()));
    for (uint64_t count = 0; count < wanted && !HasFailure(); ++count) {
      std::ranges::fill(bytes, CrowdAtMemory::kValid);
      give();
      // Sometimes lets the others run and puts this process to sleep, so that they also write directly.
      if (count % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      take();
      std::ranges::fill(bytes, CrowdAtMemory::kOwn);
      if (count % 16 == 8) std::this_thread::yield();
      if (!are(bytes, CrowdAtMemory::kOwn)) ++changed;
    }
    const CrowdAtMemory::Tally tally = crowd->end();
    std::printf("%llu rounds, beside %llu READs, %llu WRITEs and %llu that were refused\n",
                static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(tally.reads),
                static_cast<unsigned long long>(tally.writes),
                static_cast<unsigned long long>(tally.refused));
    EXPECT_EQ(changed, 0u) << "written afterwards";
    EXPECT_EQ(tally.wrong, 0u) << "read afterwards";
    EXPECT_GT(tally.reads, 0u);
    EXPECT_GT(tally.writes, 0u);
    EXPECT_GT(tally.refused, 0u);
  }

  std::unique_ptr<CrowdAtMemory> crowd;
  std::span<std::byte> bytes;
  Mr mr;
};

TEST_F(WindowRace, NobodyReadsOrWritesThroughAWindowOfType1ThatIsBoundToNothing) {
  const Mw mw = make(IBV_MW_TYPE_1);
  race(
      [&] {
        EXPECT_EQ(crowd->execute(binding(*mw)), IBV_WC_SUCCESS);
        crowd->set_key(mw->rkey);
      },
      [&] { EXPECT_EQ(crowd->execute(binding(*mw, 0)), IBV_WC_SUCCESS); });
}

// Each process has a window of its own. A process whose QP was just in error has none in this round.
TEST_F(WindowRace, NobodyReadsOrWritesThroughAWindowOfType2ThatIsInvalid) {
  std::array<Mw, kProcesses> windows;
  race(
      [&] {
        for (size_t i = 0; i < kProcesses; ++i) {
          if (windows[i] == nullptr) windows[i] = make(IBV_MW_TYPE_2);
          if (crowd->execute(i, binding(*windows[i])) == IBV_WC_SUCCESS) {
            crowd->set_key(i, windows[i]->rkey);
          } else {
            windows[i].reset();
          }
        }
      },
      [&] {
        for (Mw& mw : windows) {
          const auto i = static_cast<size_t>(&mw - windows.data());
          if (mw != nullptr && crowd->execute(i, invalidation(*mw)) != IBV_WC_SUCCESS) mw.reset();
        }
      });
}

}  // namespace
}  // namespace verbena::adapter::testing
