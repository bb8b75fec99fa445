// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/fixed_window.h"

namespace verbena::congestion {

// Algorithm of Kind::kFixed: a FixedWindow of two bursts that grows to four at most, and halves on a loss or
// CNP. It measures nothing of the path.
class FixedAlgorithm final : public Algorithm {
 public:
  explicit FixedAlgorithm(const Sizes& sizes) { window_.reset(sizes); }

  void on_arrival(const Sample& sample) override {
    window_.on_acknowledged(static_cast<uint32_t>(sample.arrived));
  }
  void on_loss(uint64_t) override { window_.on_loss(); }
  void on_timeout() override { window_.on_timeout(); }
  void on_incast(const Incast&) override {}
  void on_mark() override { window_.on_loss(); }
  Allowance allowance() const override { return {.window = window_.usable()}; }

 private:
  FixedWindow window_;
};

}  // namespace verbena::congestion
