// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commands/verbena/run_environment.h"

namespace verbena::commands {
namespace {

TEST(Sanitizers, AreKnownByTheNamesOfTheirRuntimes) {
  EXPECT_EQ(sanitizer_of("libasan.so.8"), Sanitizer::kAddress);
  EXPECT_EQ(sanitizer_of("/usr/lib/gcc/x86_64-linux-gnu/12/libasan.so"), Sanitizer::kAddress);
  EXPECT_EQ(sanitizer_of("libhwasan.so.0"), Sanitizer::kHardwareAddress);
  EXPECT_EQ(sanitizer_of("libtsan.so.2"), Sanitizer::kThread);
  EXPECT_EQ(sanitizer_of("liblsan.so.0"), Sanitizer::kLeak);
  EXPECT_EQ(sanitizer_of("libubsan.so.1"), Sanitizer::kUndefined);
  EXPECT_EQ(sanitizer_of("libclang_rt.asan-x86_64.so"), Sanitizer::kAddress);
  EXPECT_EQ(sanitizer_of("libclang_rt.asan.so"), Sanitizer::kAddress);
  EXPECT_EQ(sanitizer_of("libclang_rt.tsan-aarch64.so"), Sanitizer::kThread);
  EXPECT_EQ(sanitizer_of("libclang_rt.ubsan_standalone-x86_64.so"), Sanitizer::kUndefined);
}

TEST(Sanitizers, OtherLibrariesAreNone) {
  for (const char* library : {"", "libc.so.6", "libasan", "libasanity.so", "libclang_rt.profile-x86_64.so",
                              "libasan.so.d/libfoo.so", "/libtsan/libm.so.6"}) {
    EXPECT_EQ(sanitizer_of(library), std::nullopt) << library;
  }
}

doctor::ElfFile program_of(std::vector<std::string> needed, std::string names = {}) {
  doctor::ElfFile program;
  program.needed = std::move(needed);
  program.dynamic_names = std::move(names);
  return program;
}

TEST(Sanitizers, OfAProgramAreItsLibrariesOrLinkedIntoIt) {
  EXPECT_EQ(sanitizer_of(program_of({"libubsan.so.1", "libasan.so.8", "libc.so.6"})), Sanitizer::kAddress);
  EXPECT_EQ(sanitizer_of(program_of({"libubsan.so.1"})), Sanitizer::kUndefined);
  using namespace std::string_literals;
  EXPECT_EQ(sanitizer_of(program_of({"libc.so.6"}, "\0malloc\0__tsan_init\0"s)), Sanitizer::kThread);
  EXPECT_EQ(sanitizer_of(program_of({"libc.so.6"}, "\0malloc\0__tsan_initial\0"s)), std::nullopt);
}

TEST(AsanOptions, AcceptPreloads) {
  EXPECT_EQ(asan_options_with_preloads(""), "verify_asan_link_order=0");
  EXPECT_EQ(asan_options_with_preloads("detect_leaks=0"), "detect_leaks=0:verify_asan_link_order=0");
  EXPECT_EQ(asan_options_with_preloads("verify_asan_link_order=0"), "verify_asan_link_order=0");
}

TEST(AsanOptions, KeepTheUsersWill) {
  EXPECT_EQ(asan_options_with_preloads("a=1,verify_asan_link_order=1 b=2"),
            "a=1,verify_asan_link_order=1 b=2");
  EXPECT_TRUE(refuses_preloads("verify_asan_link_order=true"));
  EXPECT_TRUE(refuses_preloads("verify_asan_link_order=0:verify_asan_link_order=1"));
  EXPECT_FALSE(refuses_preloads("verify_asan_link_order=0"));
  EXPECT_FALSE(refuses_preloads(""));
}

}  // namespace
}  // namespace verbena::commands
