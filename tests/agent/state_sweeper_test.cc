// SPDX-License-Identifier: Apache-2.0
#include "agent/state_sweeper.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

class StateSweeper : public ::testing::Test {
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
  bool exists(const std::string& name) const { return fs::exists(home_ / name); }
  fs::path home_;
};

TEST_F(StateSweeper, RemovesTheTreeOfANamespaceThatIsGone) {
  make_tree("111");
  make_tree("222");
  EXPECT_EQ(sweep_state_directories(home_, {222}, 8), 1u);
  EXPECT_FALSE(exists("111"));
  EXPECT_TRUE(exists("222")) << "its namespace lives: the next agent goes on with it";
}

TEST_F(StateSweeper, LeavesTheTreeOfAnAgentThatLives) {
  const UniqueFd lock = lock_state_directory(make_tree("111"));
  ASSERT_TRUE(lock);
  EXPECT_EQ(sweep_state_directories(home_, {}, 8), 0u);
  EXPECT_TRUE(exists("111"));
}

TEST_F(StateSweeper, TouchesNothingThatIsNoAgents) {
  const fs::path outside = make_tree("elsewhere");
  fs::create_directory_symlink(outside, home_ / "333");
  std::ofstream(home_ / "444") << "a file\n";
  EXPECT_EQ(sweep_state_directories(home_, {}, 8), 0u);
  EXPECT_TRUE(exists("elsewhere/sys/class/infiniband/rxe_eth0/node_type"));
  EXPECT_TRUE(fs::is_symlink(home_ / "333"));
  EXPECT_TRUE(exists("444"));
  EXPECT_EQ(sweep_state_directories(home_ / "nowhere", {}, 8), 0u);
}

TEST_F(StateSweeper, RemovesNoMoreAtOnceThanItMay) {
  for (const char* name : {"1", "2", "3"}) make_tree(name);
  EXPECT_EQ(sweep_state_directories(home_, {}, 2), 2u);
  EXPECT_EQ(sweep_state_directories(home_, {}, 2), 1u);
}

TEST(LivingNetworkNamespaces, HaveOurOwnAmongThem) {
  struct stat own {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  EXPECT_TRUE(living_network_namespaces().contains(own.st_ino));
}

}  // namespace
}  // namespace verbena::agent
