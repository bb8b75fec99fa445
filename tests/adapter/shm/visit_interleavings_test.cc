// SPDX-License-Identifier: Apache-2.0
// A process that is at another's memory by itself, and the owner, who takes keys off its board and gives the
// memory to something else, in every order of their accesses, and with a crash of either anywhere.
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "adapter/shm/board.h"
#include "adapter/shm/explorer.h"
#include "adapter/shm/stepped_word.h"
#include "adapter/shm/visit.h"

namespace verbena::shm {
namespace {

template <bool kVisitorsStoresWait = false, bool kOwnersStoresWait = false>
struct TinyFormat {
  using Word = SteppedWord<kVisitorsStoresWait>;
  static constexpr uint32_t kEntries = 1;
  static constexpr RingSizes kRingBytes{256, 256, 256};
  static constexpr uint32_t kMaxPayload = 64;
  static void full_fence() {
    if (kOwnersStoresWait) return;
    Stepping::access([](SteppedThread& thread) {
      thread.commit_all();
      return 0;
    });
  }
  struct Line {
    using Word = SteppedWord<kOwnersStoresWait>;
    using Value = uint32_t;
    using ValueWord = Word;
    static constexpr size_t kWords = 2;
  };
};

struct Scenario {
  uint32_t keys = 1;  // that the owner puts on its board, one after the other
  uint32_t visits = 2;
  bool awaits_visits = true;  // the owner; not to do so is wrong
  bool has_patience = true;   // else it refuses further visits instead of waiting
};

enum class OwnerAt : uint8_t { kPublish, kWithdraw, kFence, kLook, kWait, kRefuse, kReuse, kDone };

constexpr uint32_t kOwner = 0;
constexpr uint32_t kVisitor = 1;
constexpr uint32_t kSomethingElse = 1000;

template <class Format>
struct World {
  BasicLane<Format> lane;
  BasicBoardLine<typename Format::Line> line;
  SteppedWord<> memory;  // which key's it is
  alignas(64) std::byte visitor[sizeof(BasicVisits<Format>)];
  SteppedThread threads[2];
  bool started[2];
  bool crashed[2];
  OwnerAt owner_at;
  bool refused;         // the owner has said so
  bool begun_too_late;  // the visit: after that
  uint32_t key;         // the last one that was published
  uint32_t seen;        // the visit that the owner saw
  uint32_t given_up;    // the visit that it waited for no more
  uint32_t visits;
};

template <class Format>
class VisitExplorer final : public Explorer<World<Format>> {
 public:
  explicit VisitExplorer(const Scenario& scenario) : scenario_(scenario) {
    new (world_.visitor) Visits(world_.lane, 0);
  }

 private:
  using Visits = BasicVisits<Format>;
  using Words = typename BasicBoardLine<typename Format::Line>::Words;
  using Explorer<World<Format>>::world_;
  using Explorer<World<Format>>::wrong_;

  bool step(uint32_t who) override { return who == kOwner ? step_owner() : step_visitor(); }

  void check_end() override {
    if (!world_.crashed[kOwner] && world_.owner_at != OwnerAt::kDone) wrong_ = "the owner waits forever";
    if (!world_.crashed[kVisitor] && world_.visits != scenario_.visits) wrong_ = "the visitor waits forever";
  }

  // ---- the visitor

  bool step_visitor() {
    if (world_.visits == scenario_.visits) return false;
    if (!world_.started[kVisitor]) world_.begun_too_late = world_.refused;
    if (this->template operate<Visits>(kVisitor, world_.visitor,
                                       [this](Visits& visits) { visits.run([this] { return visit(); }); })) {
      ++world_.visits;
    }
    return true;
  }

  bool visit() {
    Words words;
    uint32_t sequence;
    if (!world_.line.read(words, sequence) || words[0] == 0) return false;
    if (words[0] != words[1]) wrong_ = "words were read that do not belong together";
    // The first byte and the last.
    touch(words[0]);
    touch(words[0]);
    return true;
  }

  void touch(uint32_t key) {
    const uint32_t found = world_.memory.load(std::memory_order_relaxed);
    if (world_.begun_too_late) wrong_ = "it came though it was refused";
    if (found != key && world_.visits * 2 + 1 != world_.given_up) wrong_ = "it was at what is something else";
  }

  // ---- the owner

  template <class Operation>
  bool own(OwnerAt then, Operation operation) {
    if (this->advance(kOwner, operation)) world_.owner_at = then;
    return true;
  }

  bool step_owner() {
    switch (world_.owner_at) {
      case OwnerAt::kPublish:
        if (!world_.started[kOwner]) world_.memory.value = ++world_.key;
        return own(OwnerAt::kWithdraw, [this] { world_.line.write({world_.key, world_.key}); });
      case OwnerAt::kWithdraw:
        return own(OwnerAt::kFence, [this] { world_.line.write({}); });
      case OwnerAt::kFence:
        return own(scenario_.awaits_visits ? OwnerAt::kLook : OwnerAt::kReuse, [] { Format::full_fence(); });
      case OwnerAt::kLook:
        return own(OwnerAt::kWait, [this] { world_.seen = visit_under_way(world_.lane); });
      case OwnerAt::kWait:
        return wait();
      case OwnerAt::kRefuse:
        if (this->advance(kOwner, [this] { refuse_visits(world_.lane); })) {
          world_.refused = true;
          world_.given_up = world_.seen;
          world_.owner_at = OwnerAt::kReuse;
        }
        return true;
      case OwnerAt::kReuse:
        world_.memory.value = kSomethingElse;
        world_.owner_at = world_.key == scenario_.keys ? OwnerAt::kDone : OwnerAt::kPublish;
        return true;
      case OwnerAt::kDone:
        return false;
    }
    return false;
  }

  // For as long as the visit lasts, which the owner sees without end; or the end of the process, which it
  // hears of.
  bool wait() {
    if (world_.seen == 0 || world_.crashed[kVisitor] || world_.lane.in_access.value != world_.seen) {
      world_.owner_at = OwnerAt::kReuse;
    } else if (!scenario_.has_patience) {
      world_.owner_at = OwnerAt::kRefuse;
    } else {
      return false;
    }
    return true;
  }

  const Scenario scenario_;
};

template <class Format = TinyFormat<>>
std::string what_goes_wrong(const Scenario& scenario) {
  return VisitExplorer<Format>(scenario).explore();
}

TEST(VisitInterleavings, NobodyIsAtMemoryWhoseKeyIsGone) {
  VisitExplorer<TinyFormat<>>({.keys = 1, .visits = 2}).expect_right();
}

TEST(VisitInterleavings, NobodyTakesOneKeyForTheNext) {
  VisitExplorer<TinyFormat<>>({.keys = 3, .visits = 2}).expect_right();
}

TEST(VisitInterleavings, WhoIsWaitedForNoMoreComesNoMore) {
  VisitExplorer<TinyFormat<>>({.keys = 3, .visits = 3, .has_patience = false}).expect_right();
}

// That the explorer finds what it is for.
TEST(VisitInterleavings, AnOwnerWhoDoesNotWaitIsFound) {
  EXPECT_EQ(what_goes_wrong({.awaits_visits = false}), "it was at what is something else");
}

TEST(VisitInterleavings, AVisitThatIsAnnouncedTooLateIsFound) {
  EXPECT_EQ((what_goes_wrong<TinyFormat<true, false>>({})), "it was at what is something else");
}

TEST(VisitInterleavings, AnOwnerWhoLooksTooEarlyIsFound) {
  EXPECT_EQ((what_goes_wrong<TinyFormat<false, true>>({})), "it was at what is something else");
}

}  // namespace
}  // namespace verbena::shm
