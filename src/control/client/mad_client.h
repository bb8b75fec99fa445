// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/model/admin_error.h"
#include "control/protocol/mad_messages.h"
#include "wire/roce/path.h"

namespace verbena::control {

// Sends management datagrams to QP1 of other hosts over one link and receives the responses, like libibumad
// but without its ABI. The agent sends the datagrams and retransmits them. Not thread-safe.
class MadClient {
 public:
  using Mad = std::array<std::byte, protocol::kMadBytes>;

  // Connects to the agent and opens the port of the device. ENODEV if there is no such device.
  static AdminResult<std::unique_ptr<MadClient>> connect(uint32_t device_index,
                                                         const ConnectOptions& options = {});

  // Sends a Get or Set of class version 1 and returns the response. ETIMEDOUT if none came within timeout *
  // (retries + 1). `oui` is used only for vendor classes of range 2.
  AdminResult<Mad> ask(const roce::Address& destination, const Mad& request, uint32_t oui, Duration timeout,
                       uint32_t retries);

 private:
  MadClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  AdminResult<void> open(uint32_t device_index);
  AdminResult<uint32_t> agent_for(uint8_t management_class, uint32_t oui);

  AgentConnection connection_;
  UniqueFd events_;  // stays open, because the agent ends the session of a client that closes it
  UniqueFd port_;
  uint64_t port_number_ = 0;
  std::map<uint8_t, uint32_t> agents_;  // the agent's registration numbers, by management class
};

}  // namespace verbena::control
