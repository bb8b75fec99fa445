// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/libibverbs/fake_provider.h"
#include "libraries/libibverbs/opened_device.h"

namespace verbena::fake {
namespace {

class DeviceList : public ::testing::Test {
 protected:
  DeviceList() { provider_.reset(); }
  ~DeviceList() override { provider_.reset(); }

  FakeProvider& provider_ = FakeProvider::instance();
};

TEST_F(DeviceList, NamesDevicesInTheProvidersOrder) {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "rxe_eth0");
  EXPECT_STREQ(ibv_get_device_name(list[1]), "rxe_lo");
  EXPECT_EQ(list[2], nullptr);
  EXPECT_STREQ(list[1]->dev_name, "uverbs1");
  EXPECT_STREQ(list[1]->dev_path, "/sys/class/infiniband_verbs/uverbs1");
  EXPECT_STREQ(list[1]->ibdev_path, "/sys/class/infiniband/rxe_lo");
  EXPECT_EQ(list[1]->node_type, IBV_NODE_CA);
  EXPECT_EQ(list[1]->transport_type, IBV_TRANSPORT_IB);
  EXPECT_EQ(be64toh(ibv_get_device_guid(list[1])), 0x020000fffe000001U);
  EXPECT_EQ(ibv_get_device_index(list[1]), 1);
  ibv_free_device_list(list);
}

TEST_F(DeviceList, NeedsNoPlaceForTheCount) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  ibv_free_device_list(list);
}

TEST_F(DeviceList, IsEmptyNotNullWithoutDevices) {
  provider_.list.clear();
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(list[0], nullptr);
  ibv_free_device_list(list);
}

TEST_F(DeviceList, TellsWhyThereIsNone) {
  provider_.refuse_with = ECONNREFUSED;
  int count = -1;
  errno = 0;
  EXPECT_EQ(ibv_get_device_list(&count), nullptr);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(count, 0);
}

TEST_F(DeviceList, LetsNoExceptionOut) {
  provider_.before_each_call = [] { throw std::bad_alloc(); };
  EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  provider_.before_each_call = [] {
    throw std::system_error(std::make_error_code(std::errc::too_many_files_open));
  };
  EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
  EXPECT_EQ(errno, EMFILE);
  provider_.before_each_call = [] { throw std::logic_error("a mistake"); };
  EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
  EXPECT_EQ(errno, EIO);
}

TEST_F(DeviceList, GivesTheSamePointerForTheSameDevice) {
  ibv_device** first = ibv_get_device_list(nullptr);
  ibv_device* device = first[1];
  ibv_free_device_list(first);
  // A provider may return new objects for the same devices.
  provider_.list = {std::make_shared<FakeDevice>("rxe_lo", 1)};
  ibv_device** second = ibv_get_device_list(nullptr);
  EXPECT_EQ(second[0], device);
  ibv_free_device_list(second);
}

TEST_F(DeviceList, DoesNotTakeANewDeviceOfTheSameNameForTheOld) {
  ibv_device** first = ibv_get_device_list(nullptr);
  provider_.list = {std::make_shared<FakeDevice>("rxe_lo", 9)};
  ibv_device** second = ibv_get_device_list(nullptr);
  EXPECT_NE(second[0], first[1]);
  EXPECT_EQ(ibv_get_device_index(second[0]), 9);
  EXPECT_EQ(ibv_get_device_index(first[1]), 1) << "the old one must stay what it was";
  ibv_free_device_list(second);
  ibv_free_device_list(first);
}

TEST_F(DeviceList, LeavesOutADeviceWhoseNameDoesNotFit) {
  provider_.list.insert(provider_.list.begin(), std::make_shared<FakeDevice>(std::string(64, 'x'), 3));
  provider_.list.push_back(std::make_shared<FakeDevice>(std::string(63, 'y'), 4));
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_EQ(count, 3);
  EXPECT_STREQ(list[0]->name, "rxe_eth0");
  EXPECT_EQ(std::string(list[2]->name), std::string(63, 'y'));
  ibv_free_device_list(list);
}

TEST_F(DeviceList, HasZerosWhereVendorsLookForTheirOwnDevices) {
  ibv_device** list = ibv_get_device_list(nullptr);
  const auto* bytes = reinterpret_cast<const unsigned char*>(list[0]);
  for (size_t i = sizeof(ibv_device); i < sizeof(ibv_device) + 8; ++i) EXPECT_EQ(bytes[i], 0) << i;
  EXPECT_EQ(list[0]->_ops._dummy1, nullptr);
  ibv_free_device_list(list);
}

TEST_F(DeviceList, MayBeFreedWhileADeviceIsOpen) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ASSERT_NE(context, nullptr);
  ibv_free_device_list(list);
  provider_.list.clear();  // the device itself is gone too
  ibv_free_device_list(ibv_get_device_list(nullptr));
  EXPECT_STREQ(ibv_get_device_name(context->device), "rxe_eth0");
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(DeviceList, FreesNothingOfNull) {
  ibv_free_device_list(nullptr);
}

TEST(OpenDevice, MakesAnExtendedContext) {
  FakeProvider::instance().reset();
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->device, list[0]);
  EXPECT_EQ(context->abi_compat, reinterpret_cast<void*>(UINTPTR_MAX));
  verbs_context* extended = verbs_get_ctx(context);
  EXPECT_EQ(extended->sz, sizeof(verbs_context));
  EXPECT_EQ(pthread_mutex_trylock(&context->mutex), 0);
  pthread_mutex_unlock(&context->mutex);
  ibv_close_device(context);
  ibv_free_device_list(list);
}

TEST(OpenDevice, TellsWhyItCannot) {
  FakeProvider::instance().reset();
  FakeProvider::instance().list[0]->refuse_with = ETIMEDOUT;
  ibv_device** list = ibv_get_device_list(nullptr);
  errno = 0;
  EXPECT_EQ(ibv_open_device(list[0]), nullptr);
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_EQ(ibv_open_device(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_free_device_list(list);
  FakeProvider::instance().reset();
}

TEST(CloseDevice, DestroysTheContext) {
  FakeProvider::instance().reset();
  const int before = FakeContext::alive;
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* one = ibv_open_device(list[0]);
  ibv_context* other = ibv_open_device(list[0]);
  EXPECT_NE(one, other);
  EXPECT_EQ(FakeContext::alive, before + 2);
  EXPECT_EQ(ibv_close_device(one), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(FakeContext::alive, before);
  ibv_free_device_list(list);
}

TEST(OpenDevice, WorksFromManyThreadsAtOnce) {
  FakeProvider::instance().reset();
  ibv_device** first = ibv_get_device_list(nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ibv_device** list = ibv_get_device_list(nullptr);
        ASSERT_EQ(list[0], first[0]);
        ibv_context* context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        ASSERT_EQ(context->device, first[0]);
        ASSERT_EQ(ibv_close_device(context), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ibv_free_device_list(first);
}

TEST(CloseDevice, RefusesNull) {
  EXPECT_EQ(ibv_close_device(nullptr), EINVAL);
}

using Context = OpenedDevice;

TEST_F(Context, AnswersEopnotsuppToWhatTheProviderLacks) {
  // The fake provider has no memory windows. verbs.h calls dealloc_mw and bind_mw without a check.
  ibv_pd* pd = ibv_alloc_pd(context_);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_mw window{};
  window.context = context_;
  window.pd = pd;
  window.type = IBV_MW_TYPE_1;
  provider::LiveObject live;
  live.enter(&window, fake());
  ibv_mw_bind bind{};
  EXPECT_EQ(ibv_bind_mw(nullptr, &window, &bind), EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_mw(&window), EOPNOTSUPP);
  ibv_xrcd_init_attr xrcd{};
  EXPECT_EQ(ibv_open_xrcd(context_, &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_parent_domain_init_attr parent{};
  EXPECT_EQ(ibv_alloc_parent_domain(context_, &parent), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_dealloc_pd(pd);
}

TEST_F(Context, RefusesImports) {
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_import_pd(context_, 1), nullptr);
  EXPECT_EQ(ibv_import_mr(nullptr, 1), nullptr);
  EXPECT_EQ(ibv_import_dm(context_, 1), nullptr);
}

TEST_F(Context, DeliversAsyncEventsAndTheirAcks) {
  ibv_async_event raised{};
  raised.event_type = IBV_EVENT_GID_CHANGE;
  raised.element.port_num = 1;
  fake().raise_async_event(raised);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);  // an event of a port, which nothing waits for
  EXPECT_TRUE(fake().acked_events.empty());

  ibv_cq* cq = ibv_create_cq(context_, 1, nullptr, nullptr, 0);
  raised.event_type = IBV_EVENT_CQ_ERR;
  raised.element.cq = cq;
  fake().raise_async_event(raised);
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  ibv_ack_async_event(&event);
  ASSERT_EQ(fake().acked_events.size(), 1U);
  EXPECT_EQ(fake().acked_events[0].element.cq, cq);
  ibv_destroy_cq(cq);
}

TEST_F(Context, AcksAnUnknownEventWithoutHarm) {
  ibv_async_event event{};
  const int unknown = 30;
  std::memcpy(&event.event_type, &unknown, sizeof unknown);
  event.element.cq = reinterpret_cast<ibv_cq*>(8);
  ibv_ack_async_event(&event);
  EXPECT_TRUE(fake().acked_events.empty());
}

}  // namespace
}  // namespace verbena::fake
