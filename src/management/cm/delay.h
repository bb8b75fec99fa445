// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/role.h"

namespace verbena::cm {

// When to send an MRA: at once, or only in answer to a duplicate of the message whose answer is delayed, as
// the kernel's rdma_cm does.
enum class MraTime : uint8_t { kNow, kOnDuplicate };

// The role that sends and handles MRAs: one side needs more time to answer a REQ, REP or LAP. Manager
// documents the operation delay().
class Delay : private Role {
 public:
  explicit Delay(const RoleParts& parts) : Role(parts) {}

  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  void handle(const Mra& mra, const Incoming& incoming);

 private:
  bool enter_delayed(Connection& connection, Answered delayed);
};

}  // namespace verbena::cm
