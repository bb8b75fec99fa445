// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role of the side that requests a connection: sends REQs, handles REPs, sends RTUs. Manager documents
// the operations: connect(), ready().
class ActiveSide : private Role {
 public:
  explicit ActiveSide(const RoleParts& parts) : Role(parts) {}

  Result<LocalId> connect(const ConnectRequest& request, uint64_t context, TimePoint now);
  Result<void> ready(LocalId id, ConstBytes private_data);
  void handle(const Rep& rep, const Incoming& incoming);

 private:
  void accept(const Rep& rep, Connection& connection, const Incoming& incoming);
  void repeat_answer(const Rep& rep, Connection& connection, const Incoming& incoming);
};

}  // namespace verbena::cm
