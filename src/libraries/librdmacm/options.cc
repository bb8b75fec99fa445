// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>

#include "libraries/librdmacm/calls.h"

namespace {

using namespace verbena::rdmacm;

// Returns the option's value if it has the size that rdma_set_option(3) requires.
template <class T>
std::optional<uint32_t> value_of(const void* value, size_t length) {
  T number;
  if (value == nullptr || length != sizeof number) return std::nullopt;
  std::memcpy(&number, value, sizeof number);
  return static_cast<uint32_t>(number);
}

struct Row {
  int name;
  std::optional<uint32_t> (*value_of)(const void*, size_t);
  void (*keep)(Identifier&, uint32_t);  // stores it, to restore it at another agent
};
constexpr Row kRows[] = {
    {RDMA_OPTION_ID_TOS, value_of<uint8_t>,
     [](Identifier& id, uint32_t value) { id.type_of_service = static_cast<uint8_t>(value); }},
    {RDMA_OPTION_ID_REUSEADDR, value_of<int>,
     [](Identifier& id, uint32_t value) { id.reuse_address = value != 0; }},
    {RDMA_OPTION_ID_AFONLY, value_of<int>,
     [](Identifier& id, uint32_t value) { id.own_family_only = value != 0; }},
    {RDMA_OPTION_ID_ACK_TIMEOUT, value_of<uint8_t>,
     [](Identifier& id, uint32_t value) { id.ack_timeout = static_cast<uint8_t>(value); }},
};

int set_option(Identifier& identifier, int name, const void* value, size_t length) {
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    const auto number = row.value_of(value, length);
    if (!number) return because(EINVAL, "option {}: optval is null, or optlen {} is wrong", name, length);
    verbena::protocol::CmOptionRequest request{};
    request.option = static_cast<uint32_t>(name);
    request.value = *number;
    const auto set =
        identifier.process.agent.call(identifier, verbena::protocol::MessageType::kCmSetOption, request);
    if (!set) return set.error().code;
    const std::lock_guard lock(identifier.mutex);
    row.keep(identifier, *number);
    return 0;
  }
  return because(ENOSYS, "there is no option {} of RDMA_OPTION_ID (rdma_set_option(3))", name);
}

}  // namespace

// Supports RDMA_OPTION_ID only: RDMA_OPTION_IB is for paths from an InfiniBand subnet administrator.
VERBENA_ABI int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t length) {
  return answer_for(id, [&](Identifier& identifier) {
    if (level != RDMA_OPTION_ID)
      return because(ENOSYS, "level {} is not RDMA_OPTION_ID; options of RDMA_OPTION_IB are for InfiniBand",
                     level);
    return set_option(identifier, name, value, length);
  });
}
