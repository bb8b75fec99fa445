// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/run_environment.h"

#include <cstdlib>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "commands/verbena/installation.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

TEST(LibraryPath, OursComesFirst) {
  EXPECT_EQ(library_path_with("/opt/v", ""), "/opt/v");
  EXPECT_EQ(library_path_with("/opt/v", "/a:/b"), "/opt/v:/a:/b");
}

TEST(LibraryPath, NestedRunsNameItOnce) {
  EXPECT_EQ(library_path_with("/opt/v", "/a:/opt/v:/b"), "/opt/v:/a:/b");
}

TEST(LibraryPath, DropsEmptyItemsWhichMeanTheCurrentFolder) {
  EXPECT_EQ(library_path_with("/opt/v", "/a::/b:"), "/opt/v:/a:/b");
}

TEST(Path, OursComesFirstAndTheRestStaysAsItIs) {
  EXPECT_EQ(path_with("/opt/v/bin", "/a::/b"), "/opt/v/bin:/a::/b");
  EXPECT_EQ(path_with("/opt/v/bin", "/opt/v/bin:/a"), "/opt/v/bin:/a");
  EXPECT_EQ(path_with("/opt/v/bin", ""), "/opt/v/bin:/bin:/usr/bin");
}

TEST(Path, OurOwnProgramsComeLastAndOnce) {
  EXPECT_EQ(path_with_last("/opt/v/programs", "/a::/b"), "/a::/b:/opt/v/programs");
  EXPECT_EQ(path_with_last("/opt/v/programs", "/a:/opt/v/programs"), "/a:/opt/v/programs");
  EXPECT_EQ(path_with_last("/opt/v/programs", ""), "/bin:/usr/bin:/opt/v/programs");
}

TEST(Preload, OursComesFirstWhateverSeparatesTheOthers) {
  EXPECT_EQ(preload_with("/opt/v/libverbena-sys.so", "liba.so libb.so:libc.so"),
            "/opt/v/libverbena-sys.so:liba.so:libb.so:libc.so");
}

TEST(Preload, SanitizersRuntimesStayFirst) {
  EXPECT_EQ(preload_with("/opt/v/libverbena-sys.so", "liba.so /lib/libasan.so.8 libb.so libubsan.so.1"),
            "/lib/libasan.so.8:libubsan.so.1:/opt/v/libverbena-sys.so:liba.so:libb.so");
}

TEST(Preload, IsAloneBesideRuntimes) {
  EXPECT_TRUE(preloads_only("/opt/v/libverbena-sys.so", ""));
  EXPECT_TRUE(preloads_only("/opt/v/libverbena-sys.so", "libasan.so.8:/opt/v/libverbena-sys.so"));
  EXPECT_FALSE(preloads_only("/opt/v/libverbena-sys.so", "libjemalloc.so.2"));
}

TEST(Preload, PathThatTheLoaderWouldSplitIsNamedByItsFile) {
  EXPECT_EQ(preload_with("/opt/my programs/libverbena-sys.so", ""), "libverbena-sys.so");
}

class InstallationTest : public testing::Test {
 protected:
  InstallationTest() {
    std::string name = (fs::temp_directory_path() / "verbena-installation-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~InstallationTest() override { fs::remove_all(root_); }

  void make(const fs::path& file) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << "x";
  }

  fs::path root_;
};

TEST_F(InstallationTest, IsFoundFromTheInstalledProgram) {
  const fs::path libraries = (root_ / "bin" / VERBENA_LIBDIR_FROM_BINDIR).lexically_normal();
  make(libraries.lexically_relative(root_) / "libibverbs.so.1");
  make(libraries.lexically_relative(root_) / "libverbena-sys.so");
  make(libraries.lexically_relative(root_) / "libverbena-memory.so");
  make("bin/verbena-agent");
  const auto found = Installation::find(root_ / "bin/verbena");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->libraries, libraries);
  EXPECT_EQ(found->preload, libraries / "libverbena-sys.so");
  EXPECT_EQ(found->memory, libraries / "libverbena-memory.so");
  EXPECT_EQ(found->agent, root_ / "bin/verbena-agent");
}

TEST_F(InstallationTest, IsFoundInABuildFolder) {
  make("CMakeCache.txt");
  make("lib/libibverbs.so.1");
  const auto found = Installation::find(root_ / "bin/verbena");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->libraries, root_ / "lib");
  EXPECT_TRUE(found->preload.empty());
  EXPECT_TRUE(found->memory.empty());
}

TEST_F(InstallationTest, HasProgramsByTheirPlainNames) {
  make("CMakeCache.txt");
  make("lib/libibverbs.so.1");
  make("programs/ibv_devinfo");
  make("other");
  const auto found = Installation::find(root_ / "bin/verbena");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->programs, root_ / "programs");
  EXPECT_EQ(found->program("ibv_devinfo"), root_ / "programs/ibv_devinfo");
  for (const char* name : {"", ".", "..", "../other", "./ibv_devinfo", "nosuch", "ibv_devinfo/"}) {
    EXPECT_TRUE(found->program(name).empty()) << name;
  }
}

TEST_F(InstallationTest, WithoutProgramsHasNone) {
  make("CMakeCache.txt");
  make("lib/libibverbs.so.1");
  EXPECT_TRUE(Installation::find(root_ / "bin/verbena")->program("ibv_devinfo").empty());
}

TEST_F(InstallationTest, TheSystemsOwnLibraryIsNotTakenForOurs) {
  make("lib/libibverbs.so.1");
  EXPECT_EQ(Installation::find(root_ / "bin/verbena"), std::nullopt);
}

}  // namespace
}  // namespace verbena::commands
