// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "base/unique_fd.h"
#include "control/model/agent_status.h"
#include "control/protocol/status_page.h"
#include "wire/roce/qpn.h"

namespace verbena::control {
namespace {

class StatusPageFile : public ::testing::Test {
 protected:
  void SetUp() override {
    file_.reset(::memfd_create("page", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
    void* memory =
        ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    page_ = static_cast<protocol::StatusPage*>(memory);
  }
  void TearDown() override { ::munmap(page_, sizeof(protocol::StatusPage)); }
  std::vector<uint32_t> qpns() const {
    SlotStatus slot;
    read_status_page(file_.get(), slot);
    std::vector<uint32_t> qpns;
    for (const QpNumbers& qp : slot.qps) qpns.push_back(qp.qpn);
    return qpns;
  }
  UniqueFd file_;
  protocol::StatusPage* page_ = nullptr;
};

TEST_F(StatusPageFile, SaysNothingUntilItIsBegun) {
  page_->qps[0].in_use = 1;
  EXPECT_TRUE(qpns().empty());
  page_->magic = protocol::StatusPage::kMagic;
  EXPECT_EQ(qpns().size(), 1u);
}

TEST_F(StatusPageFile, IsReadWhereverQpsAre) {
  page_->magic = protocol::StatusPage::kMagic;
  Random random(7);
  std::vector<uint32_t> expected;
  // Records do not align with pages, so some of these straddle two pages.
  for (uint32_t index = 0; index < page_->qps.size(); index += 1 + static_cast<uint32_t>(random.below(200))) {
    page_->qps[index].in_use = 1;
    page_->qps[index].qpn = index;
    expected.push_back(index);
  }
  page_->qps.back().in_use = 1;
  page_->qps.back().qpn = 4711;
  if (expected.back() == page_->qps.size() - 1) expected.pop_back();
  expected.push_back(4711);
  EXPECT_EQ(qpns(), expected);
}

TEST_F(StatusPageFile, NumbersOfAQpThatIsGoneAreThereOnRequest) {
  page_->magic = protocol::StatusPage::kMagic;
  page_->qps[7].qpn = 4711;
  page_->qps[7].counters[0] = 12;
  EXPECT_THAT(qpns(), testing::IsEmpty());
  SlotStatus slot;
  read_status_page(file_.get(), slot, QpChoice::kAll);
  ASSERT_EQ(slot.qps.size(), 1u);
  EXPECT_EQ(slot.qps[0].qpn, 4711u);
  EXPECT_EQ(slot.qps[0].counters[0], 12u);
}

TEST_F(StatusPageFile, TellsAllNumbersOfAQp) {
  page_->magic = protocol::StatusPage::kMagic;
  page_->port[protocol::kPortSendErrors] = 3;
  protocol::QpStatus& qp = page_->qps[21];
  qp.in_use = 1;
  qp.qpn = 1;
  qp.type = 2;
  qp.state = 3;
  qp.remote_qpn = 4;
  qp.device_index = 5;
  for (size_t i = 0; i < qp.counters.size(); ++i) qp.counters[i] = 100 + i;
  for (size_t i = 0; i < page_->more[21].numbers.size(); ++i)
    page_->more[21].numbers[i] = 100 + protocol::kQpNumbers + i;
  SlotStatus slot;
  read_status_page(file_.get(), slot);
  EXPECT_EQ(slot.port[protocol::kPortSendErrors], 3u);
  ASSERT_EQ(slot.qps.size(), 1u);
  EXPECT_EQ(slot.qps[0].type, 2u);
  EXPECT_EQ(slot.qps[0].state, 3u);
  EXPECT_EQ(slot.qps[0].remote_qpn, 4u);
  EXPECT_EQ(slot.qps[0].device_index, 5u);
  for (size_t i = 0; i < slot.qps[0].counters.size(); ++i) EXPECT_EQ(slot.qps[0].counters[i], 100 + i);
}

TEST_F(StatusPageFile, TakesPayloadForOctetsIfALibraryDoesNotCountThem) {
  page_->magic = protocol::StatusPage::kMagic;
  page_->qps[3].in_use = 1;
  page_->qps[3].counters[transport::kSentBytes] = 4096;
  SlotStatus slot;
  read_status_page(file_.get(), slot);
  EXPECT_EQ(slot.qps.at(0).counters[transport::kSentOctets], 4096u);
}

TEST_F(StatusPageFile, TellsAQpsPathWhereItHasRoomForOne) {
  page_->magic = protocol::StatusPage::kMagic;
  for (const uint32_t index : {0u, 200u}) {
    page_->qps[index].in_use = 1;
    page_->paths[index].numbers[transport::kPathWindow] = 1000 + index;
  }
  SlotStatus slot;
  read_status_page(file_.get(), slot);
  ASSERT_EQ(slot.qps.size(), 2u);
  EXPECT_EQ(slot.qps[0].path[transport::kPathWindow], 1000u);
  EXPECT_EQ(slot.qps[1].path[transport::kPathWindow], 1200u);
  ASSERT_EQ(::ftruncate(file_.get(), protocol::kStatusBytesWithoutPaths), 0);  // as an older agent's
  SlotStatus without;
  read_status_page(file_.get(), without);
  ASSERT_EQ(without.qps.size(), 2u);
  EXPECT_EQ(without.qps[1].path[transport::kPathWindow], 0u);
  ASSERT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
}

TEST_F(StatusPageFile, ListsObjectsAndWhatQpsHaveOfThem) {
  page_->magic = protocol::StatusPage::kMagic;
  page_->qps[5].in_use = 1;
  page_->qps[5].qpn = roce::Qpn::in_slot(2, 5).value();
  page_->details[5].numbers[protocol::kQpPd] = protocol::number_of(2, 700);
  page_->object_counts.places = 701;
  page_->object_counts.of_kind[static_cast<size_t>(protocol::ObjectKind::kPd)] = 3;
  page_->objects[700].kind = static_cast<uint64_t>(protocol::ObjectKind::kPd);
  page_->objects[700].device_index = 4;
  page_->objects[700].values[protocol::kPdUsers] = 1;
  page_->objects[9].kind = 4711;  // a kind of a later version
  SlotStatus slot;
  slot.index = 2;
  read_status_page(file_.get(), slot);
  read_objects(file_.get(), slot);
  EXPECT_TRUE(slot.lists_objects);
  ASSERT_EQ(slot.objects.size(), 1u);
  EXPECT_EQ(slot.objects[0].number, protocol::number_of(2, 700));
  EXPECT_EQ(slot.objects[0].device_index, 4u);
  EXPECT_EQ(slot.objects[0].values[protocol::kPdUsers], 1u);
  EXPECT_EQ(slot.object_totals[static_cast<size_t>(protocol::ObjectKind::kPd)], 3u);
  EXPECT_EQ(slot.qps.at(0).details[protocol::kQpPd], protocol::number_of(2, 700));
  page_->object_counts.places = UINT64_MAX;  // reads no more than the page holds
  read_objects(file_.get(), slot);
  ASSERT_EQ(::ftruncate(file_.get(), protocol::kStatusBytesWithoutObjects), 0);  // as an older agent's
  SlotStatus old;
  read_objects(file_.get(), old);
  EXPECT_FALSE(old.lists_objects);
  ASSERT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
}

// Runs `body` in a child that the kernel ends if it maps any file. `with_cachestat`: whether cachestat(2) is
// allowed there. Returns whether the body returns true, or nullopt if no such filter can be set here.
template <class Body>
std::optional<bool> without_mappings(bool with_cachestat, const Body& body) {
  constexpr uint32_t kCachestat = 451;
  constexpr int kNoFilter = 3;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr auto kFileArgument = static_cast<uint32_t>(offsetof(seccomp_data, args[4]));
    const uint32_t at_cachestat = with_cachestat ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM;
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCachestat, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFileArgument),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, at_cachestat),
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(kNoFilter);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(kNoFilter);
    ::_exit(body() ? 0 : 2);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter) return std::nullopt;
  return status == 0;
}

// mmap() and munmap() of a file wait while another process punches holes into it.
TEST_F(StatusPageFile, IsReadWithoutAMapping) {
  page_->magic = protocol::StatusPage::kMagic;
  for (const size_t place : {size_t{0}, size_t{3000}, protocol::kQpsPerSlot - 1}) {
    page_->qps[place].qpn = static_cast<uint32_t>(place) + 77;
  }
  for (const bool with_cachestat : {true, false}) {
    const auto is_read = without_mappings(with_cachestat, [&] {
      const auto read = read_some_qps(file_.get(), 0);
      return read.qps.size() == 3 && read.qps[1].qpn == 3077 && read.next == protocol::kQpsPerSlot;
    });
    if (!is_read) GTEST_SKIP() << "no seccomp filter can be set here";
    EXPECT_TRUE(*is_read) << (with_cachestat ? "with" : "without") << " cachestat(2)";
  }
}

// A process decides which pages of the file are in memory.
TEST_F(StatusPageFile, InManyPiecesIsReadInSteps) {
  page_->magic = protocol::StatusPage::kMagic;
  constexpr uint32_t kStep = 64;
  for (uint32_t place = 0; place < protocol::kQpsPerSlot; place += kStep) page_->qps[place].qpn = place + 1;
  const auto is_read_in_steps = [&] {
    uint32_t next = 0;
    uint32_t place = 0;
    while (next < protocol::kQpsPerSlot) {
      const auto read = read_some_qps(file_.get(), next);
      for (const QpNumbers& qp : read.qps) {
        if (qp.qpn != place + 1) return false;
        place += kStep;
      }
      if (read.work > 5000 || read.next <= next) return false;
      next = read.next;
    }
    return place >= protocol::kQpsPerSlot;
  };
  EXPECT_TRUE(is_read_in_steps());
  const auto without_cachestat = without_mappings(false, is_read_in_steps);
  EXPECT_TRUE(without_cachestat.value_or(true));
}

TEST_F(StatusPageFile, MayBeAnyFileWithoutHarm) {
  SlotStatus slot;
  for (const off_t length : {off_t{0}, off_t{7}, off_t{100}, off_t{100000}}) {
    page_->magic = protocol::StatusPage::kMagic;
    page_->qps[0].in_use = 1;
    ASSERT_EQ(::ftruncate(file_.get(), length), 0);
    read_status_page(file_.get(), slot);
    ASSERT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
  }
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  read_status_page(null.get(), slot);
  read_status_page(-1, slot);
}

TEST(ResourceSummary, CountsObjectsThatAFullListHasNoRoomFor) {
  using protocol::ObjectKind;
  AgentStatus status;
  SlotStatus& slot = status.slots.emplace_back();
  const auto total = [&](ObjectKind kind) -> uint64_t& {
    return slot.object_totals[static_cast<size_t>(kind)];
  };
  slot.objects.assign(3, {.kind = ObjectKind::kCq});
  total(ObjectKind::kCq) = 5;
  EXPECT_EQ(summary_of(status, {}).cq, 3u) << "the list is short, so it is only behind";
  slot.objects.resize(protocol::kObjectsPerSlot, {.kind = ObjectKind::kMr});
  total(ObjectKind::kMr) = protocol::kObjectsPerSlot + 7;
  EXPECT_EQ(summary_of(status, {}).cq, 5u);
  EXPECT_EQ(summary_of(status, {}).mr, protocol::kObjectsPerSlot + 7);
  Link other{};
  other.device_index = 1;
  EXPECT_EQ(summary_of(status, other).cq, 0u);
}

}  // namespace
}  // namespace verbena::control
