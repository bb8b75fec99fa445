// SPDX-License-Identifier: Apache-2.0
// Devices of two providers in one list, through the C ABI.
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "libraries/libibverbs/fake_provider.h"

namespace verbena::fake {
namespace {

class ProviderList : public ::testing::Test {
 protected:
  ProviderList() { FakeProvider::reset_all(); }
  ~ProviderList() override { FakeProvider::reset_all(); }

  FakeProvider& first_ = FakeProvider::instance();
  FakeProvider& second_ = FakeProvider::second();
};

// Returns names and indexes as programs see them.
std::vector<std::pair<std::string, int>> listed() {
  std::vector<std::pair<std::string, int>> found;
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr) return found;
  for (ibv_device** device = list; *device != nullptr; ++device) {
    found.emplace_back(ibv_get_device_name(*device), ibv_get_device_index(*device));
  }
  ibv_free_device_list(list);
  return found;
}

using Listed = std::vector<std::pair<std::string, int>>;

TEST_F(ProviderList, ShowsTheDevicesOfAllInOrderWithTheirOwnIndexes) {
  second_.list = {std::make_shared<FakeDevice>("mlx5_0", 7), std::make_shared<FakeDevice>("mlx5_1", 3)};
  EXPECT_EQ(listed(), (Listed{{"rxe_eth0", 0}, {"rxe_lo", 1}, {"mlx5_0", 7}, {"mlx5_1", 3}}));
}

TEST_F(ProviderList, OpensADeviceAtTheProviderThatHasIt) {
  second_.list = {std::make_shared<FakeDevice>("mlx5_0", 7)};
  ibv_device** list = ibv_get_device_list(nullptr);
  second_.list.front()->refuse_with = EACCES;
  EXPECT_EQ(ibv_open_device(list[2]), nullptr);
  EXPECT_EQ(errno, EACCES);
  second_.list.front()->refuse_with = 0;
  ibv_context* context = ibv_open_device(list[2]);
  ASSERT_NE(context, nullptr);
  EXPECT_STREQ(ibv_get_device_name(context->device), "mlx5_0");
  EXPECT_EQ(ibv_close_device(context), 0);
  ibv_free_device_list(list);
}

TEST_F(ProviderList, GivesANameToTheProviderThatComesFirst) {
  second_.list = {std::make_shared<FakeDevice>("rxe_lo", 9), std::make_shared<FakeDevice>("mlx5_0", 7)};
  EXPECT_EQ(listed(), (Listed{{"rxe_eth0", 0}, {"rxe_lo", 1}, {"mlx5_0", 7}}));
}

TEST_F(ProviderList, ShowsWhatOneProviderHasWhenAnotherFails) {
  second_.list = {std::make_shared<FakeDevice>("mlx5_0", 7)};
  first_.refuse_with = ECONNREFUSED;
  EXPECT_EQ(listed(), (Listed{{"mlx5_0", 7}}));
  first_.refuse_with = 0;
  second_.refuse_with = EACCES;
  EXPECT_EQ(listed(), (Listed{{"rxe_eth0", 0}, {"rxe_lo", 1}}));
}

TEST_F(ProviderList, FailsAsTheFirstDoesWhenAllFail) {
  first_.refuse_with = ECONNREFUSED;
  second_.refuse_with = EACCES;
  EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(ProviderList, ImportsFromTheProviderWhoseDescriptorItIs) {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  second_.list = {std::make_shared<FakeDevice>("mlx5_0", 7)};
  second_.importable_fd = fd;
  for (const int not_mine : {EINVAL, EOPNOTSUPP}) {
    first_.refuse_import_with = not_mine;
    ibv_context* context = ibv_import_device(fd);
    ASSERT_NE(context, nullptr);
    EXPECT_STREQ(ibv_get_device_name(context->device), "mlx5_0");
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  ::close(fd);
}

TEST_F(ProviderList, RefusesTheImportOfADescriptorThatIsNobodys) {
  first_.refuse_import_with = EINVAL;
  second_.refuse_import_with = EOPNOTSUPP;
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(second_.import_calls, 1);
  first_.refuse_import_with = EOPNOTSUPP;
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(ProviderList, AsksNoOtherProviderForWhatOneKnowsAndCannotGive) {
  first_.refuse_import_with = ENODEV;
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(second_.import_calls, 0);
}

}  // namespace
}  // namespace verbena::fake
