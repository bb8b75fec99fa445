// SPDX-License-Identifier: Apache-2.0
// The symbols that the libraries export and need, read from the files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "libraries/libibverbs/command.h"

namespace verbena {
namespace {

using Names = std::set<std::string>;

std::string path_of(const std::string& library) {
  return VERBENA_LIBRARIES "/" + library;
}

Names read_list(const std::string& name) {
  std::ifstream file(VERBENA_ABI_LISTS "/" + name);
  return {std::istream_iterator<std::string>(file), {}};
}

// The symbols of Debian 12's library.
Names listed(const std::string& library) {
  return read_list(library + ".syms");
}
Names listed_with_newer(const std::string& library) {
  Names names = listed(library);
  names.merge(read_list(library + ".newer.syms"));
  names.merge(read_list(library + ".own.syms"));  // shared between our libraries
  return names;
}

// Returns the exports as name@@VERSION or name@VERSION, as the lists have them.
Names exported_by_file(const std::string& path) {
  std::istringstream lines(run_command("readelf --dyn-syms -W " + path).output);
  Names names;
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream columns(line);
    std::string number, value, size, type, bind, visibility, section, name;
    columns >> number >> value >> size >> type >> bind >> visibility >> section >> name;
    if (section == "UND" || section == "ABS" || bind == "LOCAL" || name.find('@') == std::string::npos)
      continue;
    names.insert(name);
  }
  return names;
}

Names exported(const std::string& library) {
  return exported_by_file(path_of(library));
}

// Turns name@@VERSION into name@VERSION: another library's default version need not be the default in ours.
Names without_defaults(const Names& names) {
  Names plain;
  for (std::string name : names) {
    if (const size_t at = name.find("@@"); at != std::string::npos) name.erase(at, 1);
    plain.insert(name);
  }
  return plain;
}

Names missing_from(const Names& present, const Names& wanted) {
  Names missing;
  std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(),
                      std::inserter(missing, missing.end()));
  return missing;
}

class ExportsOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Libraries, ExportsOf,
                         ::testing::Values("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1",
                                           "libibumad.so.3"),
                         [](const auto& param) {
                           const std::string name = param.param;
                           return name.substr(0, name.find('.'));
                         });

TEST_P(ExportsOf, AreAllThatDebians12LibraryHas) {
  const Names wanted = listed(GetParam());
  ASSERT_GT(wanted.size(), 5U);
  EXPECT_EQ(missing_from(exported(GetParam()), wanted), Names{});
}

// The build system's rdma-core library may be newer than the lists.
TEST_P(ExportsOf, AreAllThatTheSystemsLibraryHas) {
  const std::string path = std::string("/usr/lib/" VERBENA_MULTIARCH "/") + GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not installed";
  const Names wanted = without_defaults(exported_by_file(path));
  ASSERT_GT(wanted.size(), 5U);
  EXPECT_EQ(missing_from(without_defaults(exported(GetParam())), wanted), Names{});
}

// A library loaded into other programs exports the ABI and nothing else.
TEST_P(ExportsOf, AreNothingButTheAbi) {
  EXPECT_EQ(exported(GetParam()), listed_with_newer(GetParam()));
}

TEST_P(ExportsOf, AreFoundAtRunTimeByTheirVersions) {
  void* library = dlopen(path_of(GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string& name : listed_with_newer(GetParam())) {
    const bool is_default = name.find("@@") != std::string::npos;
    const std::string symbol = name.substr(0, name.find('@'));
    const std::string version = name.substr(name.rfind('@') + 1);
    void* address = dlvsym(library, symbol.c_str(), version.c_str());
    EXPECT_NE(address, nullptr) << name;
    if (is_default) {
      EXPECT_EQ(address, dlsym(library, symbol.c_str())) << name;
    }
  }
  dlclose(library);
}

TEST_P(ExportsOf, CarryTheSoname) {
  const std::string dynamic = run_command("readelf -dW " + path_of(GetParam())).output;
  EXPECT_NE(dynamic.find("soname: [" + std::string(GetParam()) + "]"), std::string::npos) << dynamic;
}

// Threads of the library may be running, so its code must stay. NCCL, for one, closes libraries that it
// opened.
class StaysLoadedWhenClosed : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Libraries, StaysLoadedWhenClosed,
                         ::testing::Values("libibverbs.so.1", "librdmacm.so.1"), [](const auto& param) {
                           const std::string name = param.param;
                           return name.substr(0, name.find('.'));
                         });

TEST_P(StaysLoadedWhenClosed, AsThreadsOfOursRunInIt) {
  const std::string path = path_of(GetParam());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  dlclose(library);
  void* still_there = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(still_there, nullptr);
  if (still_there != nullptr) dlclose(still_there);
}

// NCCL looks these up with dlvsym().
TEST(Nccl, FindsItsSymbols) {
  void* library = dlopen(path_of("libibverbs.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const char* const at_1_1[] = {
      "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device",
      "ibv_close_device",    "ibv_get_async_event",  "ibv_ack_async_event", "ibv_query_device",
      "ibv_query_port",      "ibv_query_gid",        "ibv_query_qp",        "ibv_alloc_pd",
      "ibv_dealloc_pd",      "ibv_reg_mr",           "ibv_dereg_mr",        "ibv_create_cq",
      "ibv_destroy_cq",      "ibv_create_qp",        "ibv_modify_qp",       "ibv_destroy_qp",
      "ibv_fork_init",       "ibv_event_type_str"};
  for (const char* name : at_1_1) EXPECT_NE(dlvsym(library, name, "IBVERBS_1.1"), nullptr) << name;
  EXPECT_NE(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_query_ece", "IBVERBS_1.10"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_set_ece", "IBVERBS_1.10"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"), nullptr);
  dlclose(library);
}

}  // namespace
}  // namespace verbena
