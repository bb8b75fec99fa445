// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/crowd_at_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

namespace verbena::adapter::testing {

struct SharedByCrowd {
  std::atomic<uint32_t> rkeys[CrowdAtMemory::kProcesses];
  std::atomic<uint32_t> over;
};

namespace {

using Tally = CrowdAtMemory::Tally;

constexpr size_t kProcesses = CrowdAtMemory::kProcesses;
constexpr std::array<size_t, 5> kLengths{8, 256, 4096, 8193, CrowdAtMemory::kBytes};

struct Told {
  pid_t process;
  int file;  // that process's descriptor of the shared mapping
  size_t index;
  uint64_t address;
};

SharedByCrowd* map_shared(int file) {
  void* const at = ::mmap(nullptr, sizeof(SharedByCrowd), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<SharedByCrowd*>(at);
}

// Reads and writes alternately with the current key. After a refusal it reports, and is connected again.
const HelperBody initiator("crowd-at-memory", [](Line& line) {
  Endpoint endpoint;
  line.tell(endpoint.address());
  const auto peer = line.hear<Address>();
  endpoint.connect(peer);
  const auto told = line.hear<Told>();
  const UniqueFd file(
      ::open(("/proc/" + std::to_string(told.process) + "/fd/" + std::to_string(told.file)).c_str(),
             O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(file);
  const SharedByCrowd& shared = *map_shared(file.get());
  line.tell(true);
  line.hear<bool>();
  Tally tally;
  for (uint64_t turn = 0; shared.over == 0; ++turn) {
    const size_t length = kLengths[turn / 2 % kLengths.size()];
    const bool reads = turn % 2 == 0;
    const std::byte before = reads ? std::byte{0} : CrowdAtMemory::kValid;
    std::memset(endpoint.buffer(), static_cast<int>(before), length);
    ibv_send_wr request = remote_request(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, endpoint.peer);
    request.wr.rdma.remote_addr = told.address;
    request.wr.rdma.rkey = shared.rkeys[told.index];
    const ibv_sge piece = endpoint.piece(0, length);
    ASSERT_EQ(endpoint.post_send(request, {&piece, 1}), 0);
    const ibv_wc wc = endpoint.completion();
    if (wc.status == IBV_WC_SUCCESS) {
      ++(reads ? tally.reads : tally.writes);
      if (reads && !are(endpoint.bytes().first(length), CrowdAtMemory::kValid)) ++tally.wrong;
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

}  // namespace

bool are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == value; });
}

uint64_t times_to_take_back(const char* variable) {
  const char* said = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): one thread
  if (said != nullptr) return std::strtoull(said, nullptr, 10);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 500;
#else
  return 5000;
#endif
}

CrowdAtMemory::CrowdAtMemory() : own_(bench_.make_qp(IBV_QPT_RC)), owns_peer_(bench_.make_qp(IBV_QPT_RC)) {
  file_.reset(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file_.get(), sizeof(SharedByCrowd)), 0);
  shared_ = map_shared(file_.get());
  bench_.connect_both(own_.get(), owns_peer_.get());
  for (size_t i = 0; i < kProcesses; ++i) {
    helpers_.push_back(std::unique_ptr<Helper>(new Helper(Helper::start("crowd-at-memory"))));
    ends_.push_back(bench_.make_qp(IBV_QPT_RC));
    peers_.push_back(helpers_[i]->line().hear<Address>());
    helpers_[i]->line().tell(address_of(ends_[i].get()));
    bench_.connect(ends_[i].get(), peers_[i].qpn);
  }
}

CrowdAtMemory::~CrowdAtMemory() {
  if (joiner_.joinable()) end();
  ::munmap(shared_, sizeof(SharedByCrowd));
}

void CrowdAtMemory::start(uint64_t address) {
  for (size_t i = 0; i < kProcesses; ++i) {
    helpers_[i]->line().tell(Told{::getpid(), file_.get(), i, address});
    EXPECT_TRUE(helpers_[i]->line().hear<bool>());
  }
  for (const auto& helper : helpers_) helper->line().tell(true);
  joiner_ = std::thread([this] { join_those_who_were_refused(); });
}

void CrowdAtMemory::set_key(uint32_t rkey) {
  for (size_t i = 0; i < kProcesses; ++i) set_key(i, rkey);
}

void CrowdAtMemory::set_key(size_t process, uint32_t rkey) {
  shared_->rkeys[process] = rkey;
}

CrowdAtMemory::Tally CrowdAtMemory::end() {
  shared_->over = 1;
  joiner_.join();
  Tally sum;
  for (const Tally& tally : tallies_) {
    EXPECT_TRUE(tally.is_last) << "a process has ended before its time";
    sum.reads += tally.reads;
    sum.writes += tally.writes;
    sum.refused += tally.refused;
    sum.wrong += tally.wrong;
  }
  return sum;
}

ibv_wc_status CrowdAtMemory::execute(ibv_send_wr request) {
  return execute_by(own_.get(), request);
}

ibv_wc_status CrowdAtMemory::execute(size_t process, ibv_send_wr request) {
  const std::lock_guard guard(ends_locks_[process]);
  return execute_by(ends_[process].get(), request);
}

ibv_wc_status CrowdAtMemory::execute_by(ibv_qp* qp, ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  request.send_flags |= IBV_SEND_SIGNALED;
  EXPECT_EQ(ibv_post_send(qp, &request, &bad), 0);
  return next_completion(bench_.cq.get()).status;
}

// Returns the address of a QP, without a buffer, which is not used here.
Address CrowdAtMemory::address_of(ibv_qp* qp) const {
  Address own;
  EXPECT_EQ(ibv_query_gid(bench_.context.get(), 1, find_gid(bench_.context.get()), &own.gid), 0);
  own.qpn = qp->qp_num;
  own.psn = Bench::kFirstPsn;
  return own;
}

void CrowdAtMemory::join_those_who_were_refused() {
  std::array<pollfd, kProcesses> lines{};
  for (size_t i = 0; i < kProcesses; ++i) lines[i] = {helpers_[i]->line().fd(), POLLIN, 0};
  for (size_t last = 0; last < kProcesses;) {
    if (::poll(lines.data(), lines.size(), 20'000) <= 0) break;
    for (size_t i = 0; i < kProcesses; ++i) {
      if (lines[i].revents == 0) continue;
      tallies_[i] = helpers_[i]->line().hear<Tally>();
      if (tallies_[i].is_last || ::testing::Test::HasFailure()) {
        lines[i].fd = -1;
        ++last;
      } else {
        join_again(i);
      }
    }
  }
}

void CrowdAtMemory::join_again(size_t process) {
  const std::lock_guard guard(ends_locks_[process]);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(ibv_modify_qp(ends_[process].get(), &attr, IBV_QP_STATE), 0);
  bench_.connect(ends_[process].get(), peers_[process].qpn);
  helpers_[process]->line().tell(true);
}

}  // namespace verbena::adapter::testing
