// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/role.h"

namespace verbena::cm {

// When an MRA leaves: at once, or (as the kernel's rdma_cm has it) only when the peer asks again.
enum class MraTime : uint8_t { kNow, kOnDuplicate };

// Either side wants more time for its answer to a REQ, a REP or a LAP: MRA out and in. Operations are those
// of Manager.
class Delay : private Role {
 public:
  explicit Delay(const RoleParts& parts) : Role(parts) {}

  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  void handle(const Mra& mra, const ReceiverReport& receipt);

 private:
  bool enter_delayed(Connection& connection, Answered delayed);
};

}  // namespace verbena::cm
