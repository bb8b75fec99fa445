// SPDX-License-Identifier: Apache-2.0
// A process takes the key of some memory back, again and again, while eight others read and write it: what
// they read is what was there while it was registered, and nothing is written afterwards.
//
// VERBENA_DEREGISTRATIONS=1000000: so many. (Some thousands by default.)
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/support/environment.h"
#include "adapter/support/helper.h"
#include "adapter/support/route.h"
#include "adapter/support/services.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kInitiators = 8;
constexpr size_t kBytes = 1 << 14;
constexpr std::byte kRegistered{1};
constexpr std::byte kOwn{2};  // nobody else's to see or to change
constexpr std::array<size_t, 5> kLengths{8, 256, 4096, 8193, kBytes};

// What all of them have mapped.
struct Shared {
  std::atomic<uint32_t> rkey;
  std::atomic<uint32_t> over;
};
struct Told {
  pid_t process;
  int file;  // of Shared, there
  uint64_t address;
};
struct Tally {
  bool is_last = false;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t refused = 0;
  uint64_t wrong = 0;
};

Shared* map_shared(int file) {
  void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<Shared*>(at);
}

bool are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == value; });
}

// Reads and writes in turns by the key of the moment. Refused, it has itself joined again.
const HelperBody initiator("deregistration-initiator", [](Line& line) {
  Endpoint endpoint;
  line.tell(endpoint.address());
  const auto peer = line.hear<Address>();
  endpoint.connect(peer);
  const auto told = line.hear<Told>();
  const UniqueFd file(
      ::open(("/proc/" + std::to_string(told.process) + "/fd/" + std::to_string(told.file)).c_str(),
             O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(file);
  const Shared& shared = *map_shared(file.get());
  line.tell(true);
  line.hear<bool>();
  Tally tally;
  for (uint64_t turn = 0; shared.over == 0; ++turn) {
    const size_t length = kLengths[turn / 2 % kLengths.size()];
    const bool reads = turn % 2 == 0;
    std::memset(endpoint.buffer(), static_cast<int>(reads ? std::byte{0} : kRegistered), length);
    ibv_send_wr request = remote_request(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, endpoint.peer);
    request.wr.rdma.remote_addr = told.address;
    request.wr.rdma.rkey = shared.rkey;
    const ibv_sge piece = endpoint.piece(0, length);
    ASSERT_EQ(endpoint.post_send(request, {&piece, 1}), 0);
    const ibv_wc wc = endpoint.completion();
    if (wc.status == IBV_WC_SUCCESS) {
      ++(reads ? tally.reads : tally.writes);
      if (reads && !are(endpoint.bytes().first(length), kRegistered)) ++tally.wrong;
      continue;
    }
    ASSERT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(wc.status);
    ++tally.refused;
    endpoint.modify_to(IBV_QPS_RESET);
    endpoint.connect(peer);
    line.tell(tally);
    line.hear<bool>();
  }
  tally.is_last = true;
  line.tell(tally);
  line.await_end();
});

// The target's QPs, and those at their other ends.
class Crowd {
 public:
  Crowd() {
    file_.reset(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file_.get(), sizeof(Shared)), 0);
    shared_ = map_shared(file_.get());
    for (size_t i = 0; i < kInitiators; ++i) {
      helpers_.push_back(std::unique_ptr<Helper>(new Helper(Helper::start("deregistration-initiator"))));
      ends_.push_back(bench_.make_qp(IBV_QPT_RC));
      peers_.push_back(helpers_[i]->line().hear<Address>());
      helpers_[i]->line().tell(address_of(ends_[i].get()));
      bench_.connect(ends_[i].get(), peers_[i].qpn);
    }
  }
  ~Crowd() {
    if (joiner_.joinable()) end();
    ::munmap(shared_, sizeof(Shared));
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // `address` is what they are at from now on.
  void start(uint64_t address) {
    for (const auto& helper : helpers_) {
      helper->line().tell(Told{::getpid(), file_.get(), address});
      EXPECT_TRUE(helper->line().hear<bool>());
    }
    for (const auto& helper : helpers_) helper->line().tell(true);
    joiner_ = std::thread([this] { join_those_who_were_refused(); });
  }
  void set_key(uint32_t rkey) { shared_->rkey = rkey; }
  Tally end() {
    shared_->over = 1;
    joiner_.join();
    Tally sum;
    for (const Tally& tally : tallies_) {
      EXPECT_TRUE(tally.is_last) << "an initiator has ended before its time";
      sum.reads += tally.reads;
      sum.writes += tally.writes;
      sum.refused += tally.refused;
      sum.wrong += tally.wrong;
    }
    return sum;
  }
  ibv_pd* pd() { return bench_.pd.get(); }

 private:
  // What an endpoint needs to know of it: not its own buffer, which nobody is at here.
  Address address_of(ibv_qp* qp) const {
    Address own;
    EXPECT_EQ(ibv_query_gid(bench_.context.get(), 1, find_gid(bench_.context.get()), &own.gid), 0);
    own.qpn = qp->qp_num;
    own.psn = Bench::kFirstPsn;
    return own;
  }
  void join_those_who_were_refused() {
    std::array<pollfd, kInitiators> lines{};
    for (size_t i = 0; i < kInitiators; ++i) lines[i] = {helpers_[i]->line().fd(), POLLIN, 0};
    for (size_t last = 0; last < kInitiators;) {
      if (::poll(lines.data(), lines.size(), 20'000) <= 0) break;
      for (size_t i = 0; i < kInitiators; ++i) {
        if (lines[i].revents == 0) continue;
        tallies_[i] = helpers_[i]->line().hear<Tally>();
        if (tallies_[i].is_last || ::testing::Test::HasFailure()) {
          lines[i].fd = -1;
          ++last;
          continue;
        }
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RESET;
        EXPECT_EQ(ibv_modify_qp(ends_[i].get(), &attr, IBV_QP_STATE), 0);
        bench_.connect(ends_[i].get(), peers_[i].qpn);
        helpers_[i]->line().tell(true);
      }
    }
  }

  UniqueFd file_;
  Shared* shared_ = nullptr;
  std::vector<std::unique_ptr<Helper>> helpers_;
  Bench bench_;
  std::vector<Qp> ends_;
  std::vector<Address> peers_;
  std::array<Tally, kInitiators> tallies_{};
  std::thread joiner_;
};

uint64_t deregistrations() {
  const char* said = std::getenv("VERBENA_DEREGISTRATIONS");  // NOLINT(concurrency-mt-unsafe): one thread
  if (said != nullptr) return std::strtoull(said, nullptr, 10);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 500;
#else
  return 5000;
#endif
}

TEST(DeregistrationRace, NobodyReadsOrWritesMemoryThatIsNoMoreRegistered) {
  use_route(usual_route());
  Crowd crowd;
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const std::span bytes(memory, kBytes);
  const uint64_t wanted = deregistrations();
  const TimePoint began = MonotonicClock::now();
  uint64_t changed = 0;
  crowd.start(reinterpret_cast<uintptr_t>(memory));
  for (uint64_t count = 0; count < wanted && !HasFailure(); ++count) {
    std::ranges::fill(bytes, kRegistered);
    Mr mr(ibv_reg_mr(crowd.pd(), memory, kBytes, static_cast<int>(kAllAccess)));
    ASSERT_NE(mr, nullptr);
    crowd.set_key(mr->rkey);
    // Now and then they get a moment, on a machine where not all of them run at once.
    if (count % 16 == 0) std::this_thread::yield();
    mr.reset();
    std::ranges::fill(bytes, kOwn);
    if (count % 16 == 8) std::this_thread::yield();
    if (!are(bytes, kOwn)) ++changed;
  }
  const Tally tally = crowd.end();
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
