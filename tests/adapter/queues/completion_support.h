// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "adapter/queues/completion_queue.h"

namespace verbena::queues {

class Listener : public CompletionListener {
 public:
  void on_completion_event() override { ++events; }
  void on_overflow() override { ++overflows; }

  std::atomic<int> events{0};
  std::atomic<int> overflows{0};
};

inline ibv_wc entry(uint64_t id, uint32_t qp = 1, ibv_wc_status status = IBV_WC_SUCCESS) {
  ibv_wc wc{};
  wc.wr_id = id;
  wc.qp_num = qp;
  wc.status = status;
  return wc;
}

}  // namespace verbena::queues
