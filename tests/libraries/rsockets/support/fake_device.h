// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace verbena::rsockets::testing {

// A device with one queue pair and one completion queue. Its peer's messages are in the test's hands;
// requests that are sent never complete. fake_device.cc has the functions of libibverbs and librdmacm over
// it.
struct FakeDevice {
  FakeDevice();

  ibv_context context{};
  ibv_pd domain{};
  rdma_cm_id id{};

  // The immediate data of completed receives, in order. One poll of the completion queue ends at nullopt.
  std::deque<std::optional<uint32_t>> completed;
  std::optional<uint32_t> without_end;  // the peer sends this message whenever a receive is posted
  size_t receives = 0;                  // posted now
  size_t delivered = 0;                 // completions that were polled
};

}  // namespace verbena::rsockets::testing
