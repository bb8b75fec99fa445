// SPDX-License-Identifier: Apache-2.0
// Calls into our libraries from threads that may be cancelled at any instruction
// (PTHREAD_CANCEL_ASYNCHRONOUS).
#include "base/cancellation_off.h"

#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include "base/c_abi.h"

namespace verbena {
namespace {

class AsynchronousCancellation : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  }

  // Runs a call of our libraries, with `call` as its body, in a thread that may be cancelled asynchronously.
  template <class Call>
  void call_from_a_thread(Call call) {
    std::thread([&] {
      ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
      without_exceptions([&] {
        call();
        worked_ = true;
        return 0;
      });
      came_back_ = true;
      ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr);
    }).join();
  }

  bool worked_ = false;
  bool came_back_ = false;
};

TEST_F(AsynchronousCancellation, EndsAThreadWhenItsCallIsDone) {
  call_from_a_thread([] { ::pthread_cancel(::pthread_self()); });
  EXPECT_TRUE(worked_);
  EXPECT_FALSE(came_back_);
}

TEST_F(AsynchronousCancellation, WaitsForTheOutermostCall) {
  bool inner_came_back = false;
  call_from_a_thread([&] {
    without_exceptions([] { return ::pthread_cancel(::pthread_self()); });
    inner_came_back = true;
  });
  EXPECT_TRUE(inner_came_back);
  EXPECT_FALSE(came_back_);
}

TEST_F(AsynchronousCancellation, EndsAThreadThatSleepsInItsCall) {
  call_from_a_thread([] {
    ::pthread_cancel(::pthread_self());
    const CancellationAllowed asleep;
    ::poll(nullptr, 0, -1);
  });
  EXPECT_FALSE(worked_);
  EXPECT_FALSE(came_back_);
}

TEST_F(AsynchronousCancellation, IsAllowedAgainAfterACall) {
  int type = PTHREAD_CANCEL_DEFERRED, state = PTHREAD_CANCEL_DISABLE;
  std::thread([&] {
    ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    without_exceptions([] { return 0; });
    ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  }).join();
  EXPECT_EQ(type, PTHREAD_CANCEL_ASYNCHRONOUS);
  EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE);
}

}  // namespace
}  // namespace verbena
