// SPDX-License-Identifier: Apache-2.0
// Pairs of devices, one for subnet management and one for all other classes, as programs of rdma-core 56 and
// later query them.
#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/umad.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "libraries/libibumad/umad.h"

namespace verbena::test {
namespace {

using umad::CaPair;

template <class Function>
Function* find(const char* name, const char* version) {
  static void* const library = ::dlopen(VERBENA_IBUMAD, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return reinterpret_cast<Function*>(::dlvsym(library, name, version));
}

class SmiGsiPairs : public NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    agent_ = std::make_unique<AgentProcess>();
    ASSERT_NE(pairs_, nullptr);
    ASSERT_NE(pair_by_name_, nullptr);
    ASSERT_NE(open_smi_port_, nullptr);
    ASSERT_EQ(get_ca_(nullptr, &first_), 0);
  }
  void TearDown() override {
    if (first_.ca_name[0] != '\0') release_ca_(&first_);
  }

  decltype(&::umad_get_ca) get_ca_ = find<decltype(::umad_get_ca)>("umad_get_ca", "IBUMAD_1.0");
  decltype(&::umad_release_ca) release_ca_ =
      find<decltype(::umad_release_ca)>("umad_release_ca", "IBUMAD_1.0");
  decltype(&::umad_close_port) close_port_ =
      find<decltype(::umad_close_port)>("umad_close_port", "IBUMAD_1.0");
  int (*open_smi_port_)(const char*, int) = find<int(const char*, int)>("umad_open_smi_port", "IBUMAD_1.3");
  int (*pairs_)(CaPair*, size_t) = find<int(CaPair*, size_t)>("umad_get_smi_gsi_pairs", "IBUMAD_1.4");
  int (*pair_by_name_)(const char*, uint8_t, CaPair*, unsigned) =
      find<int(const char*, uint8_t, CaPair*, unsigned)>("umad_get_smi_gsi_pair_by_ca_name", "IBUMAD_1.4");
  umad_ca_t first_{};

 private:
  std::unique_ptr<AgentProcess> agent_;
};

TEST_F(SmiGsiPairs, EachDeviceHasBothInterfaces) {
  std::array<CaPair, 4> pairs;
  pairs.fill({"x", 7, "y", 7});
  const int count = pairs_(pairs.data(), pairs.size());
  ASSERT_GE(count, 1);
  ASSERT_LT(count, 4);
  for (int i = 0; i < count; ++i) {
    EXPECT_STRNE(pairs[i].smi_name, "");
    EXPECT_STREQ(pairs[i].smi_name, pairs[i].gsi_name);
  }
  EXPECT_STREQ(pairs.back().gsi_name, "") << "entries beyond the count are cleared";
  EXPECT_EQ(pairs.back().gsi_port, 0U);
}

TEST_F(SmiGsiPairs, FillsNoMoreEntriesThanThereAre) {
  CaPair sentinel{"x", 7, "y", 7};
  EXPECT_EQ(pairs_(&sentinel, 0), 0);
  EXPECT_STREQ(sentinel.smi_name, "x");
}

TEST_F(SmiGsiPairs, AreFoundByNameAndPort) {
  const char* const name = first_.ca_name;
  for (const auto& [wanted, port] : {std::pair<const char*, uint8_t>(name, 0), {name, 1}, {nullptr, 0}}) {
    for (const unsigned enforce_smi : {0U, 1U}) {
      CaPair pair{"x", 7, "y", 7};
      ASSERT_EQ(pair_by_name_(wanted, port, &pair, enforce_smi), 0);
      EXPECT_STREQ(pair.smi_name, name);
      EXPECT_STREQ(pair.gsi_name, name);
      EXPECT_EQ(pair.smi_port, 1U);
      EXPECT_EQ(pair.gsi_port, 1U);
    }
  }
}

TEST_F(SmiGsiPairs, UnknownNamesAndPortsAreNoDevice) {
  CaPair pair;
  EXPECT_EQ(pair_by_name_("nobodys", 0, &pair, 0), -ENODEV);
  EXPECT_STREQ(pair.smi_name, "");
  EXPECT_EQ(pair_by_name_(first_.ca_name, 2, &pair, 0), -ENODEV);
  EXPECT_EQ(pair_by_name_(nullptr, 0, nullptr, 0), -1);
}

TEST_F(SmiGsiPairs, TheSmiPortOpens) {
  const int port = open_smi_port_(first_.ca_name, 1);
  EXPECT_GE(port, 0);
  if (port >= 0) close_port_(port);
  EXPECT_EQ(open_smi_port_("nobodys", 0), -ENODEV);
  EXPECT_EQ(open_smi_port_(first_.ca_name, 2), -EINVAL);
}

}  // namespace
}  // namespace verbena::test
