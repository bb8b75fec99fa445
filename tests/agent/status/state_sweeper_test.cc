// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_sweeper.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

class SweptHome : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/verbena-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    home_ = name;
  }
  void TearDown() override { fs::remove_all(home_); }
  std::string make_tree(const std::string& name) {
    fs::create_directories(home_ / name / "sys/class/infiniband/rxe_eth0");
    std::ofstream(home_ / name / "sys/class/infiniband/rxe_eth0/node_type") << "1: CA\n";
    return home_ / name;
  }
  // Sweeps while these namespaces exist. Returns the number of removed directories.
  size_t sweep(const std::set<uint64_t>& living = {}) const {
    return sweep_state_directories(
        home_, [&] { return living; }, [] { return false; });
  }
  bool exists(const std::string& name) const { return fs::exists(home_ / name); }
  fs::path home_;
};

TEST_F(SweptHome, RemovesTheTreeOfANamespaceThatIsGone) {
  make_tree("111");
  make_tree("222");
  EXPECT_EQ(sweep({222}), 1u);
  EXPECT_FALSE(exists("111"));
  EXPECT_TRUE(exists("222")) << "its namespace lives: the next agent goes on with it";
}

TEST_F(SweptHome, LeavesTheTreeOfAnAgentThatLives) {
  const UniqueFd lock = lock_state_directory(make_tree("111"));
  ASSERT_TRUE(lock);
  EXPECT_EQ(sweep(), 0u);
  EXPECT_TRUE(exists("111"));
}

TEST_F(SweptHome, IgnoresLocksThatAnybodyCanTake) {
  for (const std::string name : {"111", "222-mirror"}) {
    SCOPED_TRACE(name);
    const std::string directory = make_tree(name);
    const UniqueFd strangers(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(::flock(strangers.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_TRUE(lock_state_directory(directory));
    EXPECT_EQ(sweep(), 1u);
    EXPECT_FALSE(exists(name));
  }
}

TEST_F(SweptHome, TouchesNothingThatIsNoAgents) {
  const fs::path outside = make_tree("elsewhere");
  fs::create_directory_symlink(outside, home_ / "333");
  std::ofstream(home_ / "444") << "a file\n";
  EXPECT_EQ(sweep(), 0u);
  EXPECT_TRUE(exists("elsewhere/sys/class/infiniband/rxe_eth0/node_type"));
  EXPECT_TRUE(fs::is_symlink(home_ / "333"));
  EXPECT_TRUE(exists("444"));
  home_ /= "nowhere";
  EXPECT_EQ(sweep(), 0u);
  home_ = home_.parent_path();
}

TEST_F(SweptHome, LosesNothingWhoseNumberIsAnotherNamespacesByNow) {
  make_tree("111");
  int looks = 0;
  const auto living = [&] { return looks++ == 0 ? std::set<uint64_t>{} : std::set<uint64_t>{111}; };
  EXPECT_EQ(sweep_state_directories(home_, living, [] { return false; }), 0u);
  EXPECT_TRUE(exists("111"));
}

TEST_F(SweptHome, LosesWhatAKilledAgentHadSetAside) {
  const std::string aside = set_aside(make_tree("111")).value_or("");
  EXPECT_FALSE(exists("111"));
  EXPECT_TRUE(fs::exists(aside));
  make_tree("111");
  EXPECT_EQ(sweep({111}), 1u);
  EXPECT_FALSE(fs::exists(aside));
  EXPECT_TRUE(exists("111")) << "of the agent after it";
}

TEST_F(SweptHome, LosesTheTreeOfAMirrorThatIsGone) {
  make_tree("111-mirror");
  const std::string aside = set_aside(make_tree("222-mirror")).value_or("");
  make_tree("333-mirror");
  const UniqueFd lock = lock_mirror_directory(home_ / "333-mirror");
  ASSERT_TRUE(lock);
  make_tree("other-mirror");
  EXPECT_EQ(sweep({111, 222, 333}), 2u) << "the next mirror makes its own";
  EXPECT_FALSE(exists("111-mirror"));
  EXPECT_FALSE(fs::exists(aside));
  EXPECT_TRUE(exists("333-mirror"));
  EXPECT_TRUE(exists("other-mirror")) << "it is none";
}

TEST_F(SweptHome, KeepsWhatAnAgentIsRemovingItself) {
  const std::string directory = make_tree("111");
  const UniqueFd lock = lock_state_directory(directory);
  const std::string aside = set_aside(directory).value_or("");
  EXPECT_EQ(sweep(), 0u);
  EXPECT_TRUE(fs::exists(aside));
}

TEST_F(SweptHome, LeavesADirectoryInWhichAnAgentIsAboutToBegin) {
  const std::string lock_file = make_tree("111") + "/agent.lock";
  const UniqueFd lock(::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(sweep(), 0u);
  EXPECT_TRUE(exists("111"));
}

TEST_F(SweptHome, KeepsTracesAndLogsForAnHour) {
  for (const char* name : {"traces-111", "log-111", "old-log-111"}) {
    std::ofstream(home_ / name) << "x";
    EXPECT_EQ(sweep(), 0u);
    EXPECT_TRUE(exists(name)) << "the namespace may have a name, and no process";
    fs::last_write_time(home_ / name, fs::file_time_type::clock::now() - std::chrono::minutes(61));
    EXPECT_EQ(sweep({111}), 0u);
    EXPECT_EQ(sweep(), 1u);
    EXPECT_FALSE(exists(name));
  }
}

TEST_F(SweptHome, IsLeftAloneWhenTheAgentEnds) {
  for (const char* name : {"1", "2", "3"}) make_tree(name);
  const auto two_are_gone = [&] { return exists("1") + exists("2") + exists("3") == 1; };
  sweep_state_directories(
      home_, [] { return std::set<uint64_t>(); }, two_are_gone);
  EXPECT_TRUE(two_are_gone());
}

TEST(StateSweeping, EndsAtOnceBeforeItsTime) {
  const std::jthread sweeper = sweep_later("/nonexistent", std::chrono::hours(1));
}

TEST(LivingNetworkNamespaces, HaveOurOwnAmongThem) {
  struct stat own {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  EXPECT_TRUE(living_network_namespaces().contains(own.st_ino));
}

}  // namespace
}  // namespace verbena::agent
