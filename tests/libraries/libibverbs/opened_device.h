// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "libraries/libibverbs/fake_provider.h"

namespace verbena::fake {

// A fixture with the first device of the fake provider, opened through the C ABI.
class OpenedDevice : public ::testing::Test {
 protected:
  OpenedDevice() {
    FakeProvider::instance().reset();
    ibv_device** list = ibv_get_device_list(nullptr);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
  }
  ~OpenedDevice() override { ibv_close_device(context_); }

  FakeContext& fake() { return FakeContext::of(context_); }

  ibv_context* context_ = nullptr;
};

}  // namespace verbena::fake
