// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_tree.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include "agent/event_loop.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class StateTreeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "verbena-state-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    home_ = name;
    directory_ = name + "/1";
    fs::create_directory(directory_);
  }
  void TearDown() override { fs::remove_all(home_); }

  static control::Link link(std::string name, uint32_t index) {
    control::Link link;
    link.name = std::move(name);
    link.device_index = index;
    link.netdev = "eth" + std::to_string(index);
    link.mtu = 1500;
    link.gids = {{0, {}}};
    return link;
  }
  static bool never() { return false; }
  std::string read(const std::string& path) const {
    std::ifstream file(directory_ + '/' + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  bool exists(const std::string& path) const { return fs::exists(directory_ + '/' + path); }

  std::string home_;
  std::string directory_;
};

// Simulates a full disk in a way that stops root, too: a file in the place of a folder.
TEST_F(StateTreeTest, IsWholeOnceThereIsRoom) {
  StateTree tree(directory_);
  const std::string in_the_way = directory_ + "/sys/class/infiniband_verbs";
  fs::create_directories(directory_ + "/sys/class");
  std::ofstream(in_the_way) << "x";
  EXPECT_FALSE(tree.show({link("rxe_eth0", 0)}));
  EXPECT_FALSE(tree.show({link("rxe_eth0", 0)}));
  fs::remove(in_the_way);
  EXPECT_TRUE(tree.show({link("rxe_eth0", 0)}));
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/node_type"), "1: CA\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/abi_version"), "6\n");
}

TEST_F(StateTreeTest, ShowsDevicesWhereProgramsLook) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0), link("rxe_eth1", 1)});
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/node_type"), "1: CA\n");
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth1/ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/ibdev"), "rxe_eth1\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/device/net/eth1/mtu"), "1500\n");
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/device/infiniband_verbs/uverbs0/ibdev"), "rxe_eth0\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(read("sys/class/infiniband_mad/abi_version"), "5\n");
  EXPECT_EQ(read("sys/class/infiniband_mad/umad1/ibdev"), "rxe_eth1\n");
  EXPECT_EQ(read("sys/class/infiniband_mad/issm1/port"), "1\n");
  EXPECT_EQ(read("sys/class/misc/rdma_cm/abi_version"), "4\n");
  for (const char* node : {"uverbs0", "uverbs1", "umad0", "issm1", "rxe_eth0", "rxe_eth1", "rdma_cm"}) {
    struct stat status {};
    ASSERT_EQ(::stat((directory_ + "/dev/infiniband/" + node).c_str(), &status), 0) << node;
    EXPECT_TRUE(S_ISCHR(status.st_mode));
  }
}

// Scripts and UCX follow these links to a device's hardware.
TEST_F(StateTreeTest, HasTheKernelsSymbolicLinks) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  const fs::path hardware = directory_ + "/sys/devices/infiniband.verbena/rxe_eth0";
  for (const auto& [path, place] : std::vector<std::pair<std::string, fs::path>>{
           {"sys/class/infiniband/rxe_eth0", hardware / "infiniband/rxe_eth0"},
           {"sys/class/infiniband/rxe_eth0/device", hardware},
           {"sys/class/infiniband/rxe_eth0/subsystem", directory_ + "/sys/class/infiniband"},
           {"sys/class/infiniband_verbs/uverbs0", hardware / "infiniband_verbs/uverbs0"},
           {"sys/class/infiniband_verbs/uverbs0/device", hardware},
           {"sys/class/infiniband_mad/umad0", hardware / "infiniband_mad/umad0"},
           {"sys/class/misc/rdma_cm", directory_ + "/sys/devices/virtual/misc/rdma_cm"},
           {"sys/class/misc/rdma_cm/subsystem", directory_ + "/sys/class/misc"}}) {
    EXPECT_TRUE(fs::is_symlink(directory_ + '/' + path)) << path;
    EXPECT_EQ(fs::canonical(directory_ + '/' + path), fs::canonical(place)) << path;
  }
}

// The whole tree, not only its sysfs folder, may be mounted elsewhere.
TEST_F(StateTreeTest, LinksStayBelowSys) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  fs::rename(directory_ + "/sys", home_ + "/elsewhere");
  EXPECT_TRUE(fs::exists(home_ + "/elsewhere/class/infiniband/rxe_eth0/ports/1/state"));
  EXPECT_TRUE(fs::exists(home_ + "/elsewhere/class/infiniband/rxe_eth0/device/vendor"));
  fs::rename(home_ + "/elsewhere", directory_ + "/sys");
}

TEST_F(StateTreeTest, FollowsTheLinks) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0), link("rxe_eth1", 1)});
  control::Link up = link("rxe_eth0", 0);
  up.up = true;
  tree.show({up});
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/ports/1/state"), "4: ACTIVE\n");
  for (const char* gone :
       {"sys/class/infiniband/rxe_eth1", "sys/class/infiniband_verbs/uverbs1", "dev/infiniband/uverbs1",
        "dev/infiniband/rxe_eth1", "sys/class/infiniband_mad/umad1", "dev/infiniband/issm1"}) {
    EXPECT_FALSE(exists(gone)) << gone;
  }
}

TEST_F(StateTreeTest, ReplacesWhatAKilledAgentLeft) {
  fs::create_directories(directory_ + "/sys/class/infiniband/old/ports/1");
  fs::create_directories(directory_ + "/sys/class/infiniband/rxe_eth0/ports/7");
  fs::create_directories(directory_ + "/.fresh-5/half/done");
  fs::create_directories(directory_ + "/dev/infiniband");
  std::ofstream(directory_ + "/dev/infiniband/uverbs0") << "not a device";
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  EXPECT_FALSE(exists("sys/class/infiniband/old"));
  EXPECT_FALSE(exists("sys/class/infiniband/rxe_eth0/ports/7"));
  EXPECT_TRUE(exists("sys/class/infiniband/rxe_eth0/ports/1/gids/0"));
  EXPECT_TRUE(fs::is_character_file(directory_ + "/dev/infiniband/uverbs0"));
  tree.remove_discarded(never);
  EXPECT_THAT(names_in(directory_), UnorderedElementsAre("sys", "dev"));
}

TEST_F(StateTreeTest, RemovesWhatIsNotShownAnyMoreOnlyWhenThereIsTime) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  EXPECT_TRUE(tree.show({}));
  EXPECT_FALSE(exists("sys/class/infiniband/rxe_eth0"));
  int looks = 0;
  tree.remove_discarded([&] { return ++looks > 3; });
  EXPECT_TRUE(tree.has_discarded());
  EXPECT_GT(names_in(directory_).size(), 2u);
  tree.remove_discarded(never);
  EXPECT_FALSE(tree.has_discarded());
  EXPECT_THAT(names_in(directory_), UnorderedElementsAre("sys", "dev"));
}

TEST_F(StateTreeTest, ShowsCountersAlsoAfterTheLinkHasChanged) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  DeviceCounters counters{};
  counters[transport::kSentPackets] = 12;
  counters[transport::kSentOctets] = 4096;
  tree.show_counters("rxe_eth0", counters);
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/ports/1/hw_counters/sent_pkts"), "12\n");
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/ports/1/counters/port_xmit_data"), "1024\n");
  control::Link up = link("rxe_eth0", 0);
  up.up = true;
  tree.show({up});
  EXPECT_EQ(read("sys/class/infiniband/rxe_eth0/ports/1/hw_counters/sent_pkts"), "12\n");
  tree.show_counters("nobody", counters);
}

TEST_F(StateTreeTest, HasGivenItsNameToTheNextBeforeItIsRemoved) {
  auto tree = std::make_unique<StateTree>(directory_);
  tree->show({link("rxe_eth0", 0)});
  EXPECT_TRUE(tree->step_aside());
  EXPECT_FALSE(fs::exists(directory_));
  StateTree next(directory_);
  next.show({link("rxe_eth1", 1)});
  tree.reset();
  EXPECT_TRUE(fs::exists(directory_ + "/sys/class/infiniband/rxe_eth1"));
  EXPECT_THAT(names_in(home_), ElementsAre("1"));
}

TEST_F(StateTreeTest, IsStillThereUnderItsNameWhereItCannotStepAside) {
  StateTree tree(directory_ + "/never-made");
  EXPECT_FALSE(tree.step_aside());
}

// Anybody may open the files, so the agent must not read until no event is left.
TEST_F(StateTreeTest, TakesABoundedNumberOfEventsOfItsReadersAtOnce) {
  StateTree tree(directory_);
  tree.show({link("rxe_eth0", 0)});
  const std::string file = directory_ + "/sys/class/infiniband/rxe_eth0/ports/1/counters/port_xmit_data";
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(std::ifstream(file).is_open());
  const auto has_more = [&] {
    pollfd events{tree.readers().fd(), POLLIN, 0};
    return ::poll(&events, 1, 0) == 1;
  };
  tree.readers().take_news();
  EXPECT_TRUE(has_more());
  while (has_more()) tree.readers().take_news();
  EXPECT_FALSE(tree.readers().any());
  const std::ifstream reading(file);
  tree.readers().take_news();
  EXPECT_TRUE(tree.readers().any());
}

TEST_F(StateTreeTest, LeavesNothingBehind) {
  { StateTree(directory_).show({link("rxe_eth0", 0)}); }
  EXPECT_FALSE(fs::exists(directory_));
  EXPECT_FALSE(fs::exists(home_));
}

// Anybody may open and close a counter file all the time.
TEST_F(StateTreeTest, ReadersThatComeAndGoAreLookedAtAfterAPause) {
  EventLoop loop;
  CounterReaders readers;
  std::ofstream(directory_ + "/counter") << 1;
  readers.watch(directory_);
  int firsts = 0;
  readers.watch_in(
      loop, [&] { ++firsts; }, std::chrono::hours(1));
  {
    const std::ifstream reader(directory_ + "/counter");
    loop.run_round();
    EXPECT_EQ(firsts, 1);
  }
  loop.in_next_round([] {});
  loop.run_round();
  EXPECT_TRUE(readers.any()) << "the pause is not over";
  readers.take_news();
  EXPECT_FALSE(readers.any());
  loop.forget(readers.fd());
}

}  // namespace
}  // namespace verbena::agent
