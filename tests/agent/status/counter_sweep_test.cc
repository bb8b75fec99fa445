// SPDX-License-Identifier: Apache-2.0
// Counters summed from the processes' status pages, a limited amount at a time.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {
namespace {

constexpr uid_t kOwn = 500;
constexpr uid_t kUser = 1000;
constexpr uint32_t kDevice = 3;
constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr size_t kMuch = 1 << 30;

// The status page of a slot, as its process writes it.
class Page {
 public:
  explicit Page(const LeasedSlot& slot) : slot_(slot.index) {
    void* const memory =
        ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED, slot.page, 0);
    EXPECT_NE(memory, MAP_FAILED);
    page_ = static_cast<protocol::StatusPage*>(memory);
    page_->magic = protocol::StatusPage::kMagic;
  }
  ~Page() { ::munmap(page_, sizeof(protocol::StatusPage)); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  void publish(uint32_t place, uint64_t sent, uint32_t device = kDevice) {
    say_qpn(place, roce::Qpn::in_slot(slot_, place).value());
    page_->qps[place].device_index = device;
    page_->qps[place].counters[transport::kSentPackets] = sent;
  }
  void say_qpn(uint32_t place, uint32_t qpn) {
    page_->qps[place].in_use = 1;
    page_->qps[place].qpn = qpn;
  }
  void fill(uint64_t sent) {
    for (uint32_t place = 0; place < protocol::kQpsPerSlot; ++place) publish(place, sent);
  }

 private:
  const uint32_t slot_;
  protocol::StatusPage* page_ = nullptr;
};

class CounterSweepTest : public ::testing::Test {
 protected:
  CounterSweepTest() { collector.set_devices({kDevice}); }

  LeasedSlot lease(uint64_t session = 1, uid_t user = kUser) {
    Lessee lessee;
    lessee.session = session;
    lessee.uid = user;
    const auto slot = slots.lease(lessee, kStart);
    EXPECT_TRUE(slot);
    return slot ? *slot : LeasedSlot();
  }
  // The slot is returned.
  void end(const LeasedSlot& slot) {
    sweep.finish(slot);
    EXPECT_TRUE(slots.take_back(slot.index, slot.lessee.session, kStart));
  }
  // Does what follows one or more parts that users' threads have read.
  void take_parts() {
    pollfd read{closer.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&read, 1, 10'000), 1);
    for (const ForeignCloser::Done& done : closer.take_closed()) {
      if (done.task) done.task();
    }
  }
  uint64_t sweep_all() {
    sweep.begin();
    while (sweep.advance(kMuch) > 0 || sweep.has_work()) take_parts();
    return sent();
  }
  uint64_t sent(uint32_t device = kDevice) const {
    const auto found = collector.devices().find(device);
    return found != collector.devices().end() ? found->second[transport::kSentPackets] : 0;
  }

  Wire wire{4791};
  SlotTable slots{wire, kOwn};
  CounterCollector collector{kOwn};
  ForeignCloser closer;
  std::vector<size_t> parts;  // work of each
  CounterSweep sweep{slots, collector, closer, [this](size_t work) { parts.push_back(work); }};
};

TEST_F(CounterSweepTest, SumsOnlyEverGrow) {
  const LeasedSlot slot = lease();
  Page page(slot);
  page.publish(7, 100);
  EXPECT_EQ(sweep_all(), 100u);
  page.publish(7, 150);
  EXPECT_EQ(sweep_all(), 150u);
  page.publish(7, 5);  // a new QP with the same number
  EXPECT_EQ(sweep_all(), 155u);
}

TEST_F(CounterSweepTest, ASlotThatComesBackIsCountedOnce) {
  const LeasedSlot slot = lease();
  {
    Page page(slot);
    page.publish(7, 100);
    EXPECT_EQ(sweep_all(), 100u);
    page.publish(7, 130);
    end(slot);
  }
  EXPECT_EQ(sweep.unfinished(kUser), 1u);
  EXPECT_EQ(sweep_all(), 130u);
  EXPECT_EQ(sweep.unfinished(kUser), 0u);
  Lessee next;
  next.session = 2;
  next.uid = kUser;
  const auto again = slots.lease(next, kStart + std::chrono::hours(1));
  ASSERT_TRUE(again);
  ASSERT_EQ(again->index, slot.index) << "the same slot, of another process";
  Page page(*again);
  page.publish(7, 200);
  EXPECT_EQ(sweep_all(), 330u);
}

TEST_F(CounterSweepTest, AProcessSpeaksForItsOwnQpsOnly) {
  const LeasedSlot honest = lease(1, kUser);
  const LeasedSlot forger = lease(2, kUser + 1);
  Page of_honest(honest);
  Page of_forger(forger);
  of_honest.publish(7, 100);
  EXPECT_EQ(sweep_all(), 100u);
  of_forger.publish(7, 1000);
  of_forger.say_qpn(7, roce::Qpn::in_slot(honest.index, 7).value());
  EXPECT_EQ(sweep_all(), 100u) << "a QP of another's slot";
  of_forger.say_qpn(7, roce::Qpn::in_slot(forger.index, 8).value());
  EXPECT_EQ(sweep_all(), 100u) << "not the QP of this place";
  of_honest.publish(7, 110);
  EXPECT_EQ(sweep_all(), 110u);
}

TEST_F(CounterSweepTest, NothingIsKeptOfDevicesThatThereAreNot) {
  const LeasedSlot slot = lease();
  Page page(slot);
  for (uint32_t place = 0; place < protocol::kQpsPerSlot; ++place) page.publish(place, 1, 1000 + place);
  EXPECT_EQ(sweep_all(), 0u);
  EXPECT_EQ(collector.devices().size(), 1u);
  page.publish(7, 5);
  EXPECT_EQ(sweep_all(), 5u);
  collector.set_devices({});
  EXPECT_TRUE(collector.devices().empty()) << "the device is gone";
}

TEST_F(CounterSweepTest, ReadsFullPagesLittleByLittle) {
  std::vector<std::unique_ptr<Page>> pages;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(std::make_unique<Page>(lease()));
    pages.back()->fill(2);
  }
  EXPECT_EQ(sweep_all(), 2 * 3 * protocol::kQpsPerSlot);
  EXPECT_LT(std::ranges::max(parts), CounterSweep::kMaxPart);
  EXPECT_GT(parts.size(), 3 * protocol::kQpsPerSlot / CounterSweep::kMaxPart);
}

// A process can make a reading of its page wait for any time.
TEST_F(CounterSweepTest, AUserWhosePagesCannotBeReadHoldsUpNoOther) {
  const LeasedSlot stuck = lease(1, kUser);
  Page page_of_stuck(stuck);
  page_of_stuck.publish(7, 100);
  Page(lease(2, kUser + 1)).publish(7, 10);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      kUser, stuck.page, [&](int) { is_stuck.wait(true); }, [] {}));
  sweep.begin();
  while (sent() < 10) {
    sweep.advance(kMuch);
    take_parts();
  }
  end(stuck);
  EXPECT_EQ(sweep.unfinished(kUser), 1u);
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_EQ(sweep_all(), 110u) << "the part that was read late counts once";
}

TEST_F(CounterSweepTest, UsersTakeTurnsWhereThereIsLittleTime) {
  for (uid_t user = kUser; user < kUser + 3; ++user) Page(lease(user, user)).publish(1, 1);
  sweep.begin();
  for (uint64_t read = 1; read <= 3; ++read) {
    EXPECT_EQ(sweep.advance(1), CounterSweep::kMaxPart);
    while (parts.size() < read) take_parts();
    EXPECT_EQ(sent(), read);
  }
}

// A user takes slots, fills their pages and returns them, again and again.
TEST_F(CounterSweepTest, SlotsThatCameBackCountUntilTheyAreRead) {
  for (int i = 0; i < 5; ++i) {
    const LeasedSlot slot = lease();
    Page(slot).publish(1, 1);
    end(slot);
  }
  EXPECT_EQ(sweep.unfinished(kUser), 5u);
  EXPECT_EQ(sweep.unfinished(kUser + 1), 0u);
  EXPECT_EQ(sweep_all(), 5u);
  EXPECT_EQ(sweep.unfinished(kUser), 0u);
}

TEST_F(CounterSweepTest, WhatIsKeptOfOneUsersQpsIsBounded) {
  std::vector<std::unique_ptr<Page>> pages;
  const size_t room = CounterCollector::kQps.all - CounterCollector::kQps.reserve;
  for (size_t i = 0; i <= room / protocol::kQpsPerSlot; ++i) {
    pages.push_back(std::make_unique<Page>(lease()));
    pages.back()->fill(1);
  }
  EXPECT_LE(sweep_all(), room * 2 / 3);
  Page other(lease(2, kUser + 1));
  const uint64_t before = sent();
  other.publish(1, 9);
  EXPECT_EQ(sweep_all(), before + 9);
}

TEST(SweepAllowance, ComesBackWithTime) {
  SweepAllowance allowance;
  EXPECT_EQ(allowance.at(kStart), SweepAllowance::kMax);
  allowance.spend(SweepAllowance::kMax + 5);
  EXPECT_EQ(allowance.at(kStart), 0u);
  EXPECT_EQ(allowance.at(kStart + std::chrono::milliseconds(2)), 2 * SweepAllowance::kPerMillisecond);
  EXPECT_EQ(allowance.at(kStart + std::chrono::hours(1)), SweepAllowance::kMax);
}

}  // namespace
}  // namespace verbena::agent
