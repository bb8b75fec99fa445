// SPDX-License-Identifier: Apache-2.0
// Functions that Debian 12's librdmacm lacks.
#include "libraries/librdmacm/newer.h"

#include <cerrno>
#include <cstring>

#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/events.h"

namespace {

using namespace verbena::rdmacm;
using verbena::protocol::CmEvent;

void write_event(Identifier& identifier, int type, int status, uint64_t argument) {
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.type = static_cast<uint32_t>(type);
  event.status = status;
  event.flags = verbena::protocol::kCmFromProgram;
  event.generation = identifier.process.agent.generation();
  std::memcpy(event.parameters.private_data, &argument, sizeof argument);
  {
    const std::lock_guard lock(identifier.mutex);
    event.id = identifier.number;
  }
  identifier.process.agent.post(*identifier.events, event);
}

int resolve(Identifier& identifier, const char* node, const char* service, const rdma_addrinfo* hints) {
  const int sources = hints != nullptr ? hints->ai_flags & (kFromDns | kFromSubnet) : 0;
  if ((sources & kFromSubnet) != 0)
    return because(ENOTSUP, "ai_flags {:#x}: RoCE has no subnet administrator to ask (RAI_SA)", sources);
  rdma_addrinfo* found = nullptr;
  if (const int error = rdma_getaddrinfo(node, service, hints, &found)) return error == -1 ? errno : EINVAL;
  {
    const std::lock_guard lock(identifier.mutex);
    identifier.information = found;
  }
  write_event(identifier, kAddressInformationResolved, 0, 0);
  return complete(identifier);
}

}  // namespace

VERBENA_ABI int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument) {
  return answer_for(id, [&](Identifier& identifier) {
    int type;
    std::memcpy(&type, &event, sizeof type);
    if (type != kUserEvent) return because(EINVAL, "event {} is not RDMA_CM_EVENT_USER", type);
    write_event(identifier, kUserEvent, status, argument);
    return 0;
  });
}

VERBENA_ABI int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                      const rdma_addrinfo* hints) {
  return answer_for(id, [&](Identifier& identifier) {
    {
      const std::lock_guard lock(identifier.mutex);
      if (identifier.resolving_information)
        return because(EBUSY, "an earlier rdma_resolve_addrinfo() waits for rdma_query_addrinfo()");
      identifier.resolving_information = true;
    }
    const int error = resolve(identifier, node, service, hints);
    if (error != 0) {
      const std::lock_guard lock(identifier.mutex);
      identifier.resolving_information = false;
    }
    return error;
  });
}

VERBENA_ABI int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** information) {
  return answer_for(id, [&](Identifier& identifier) {
    if (information == nullptr) return because(EINVAL, "info is null");
    const std::lock_guard lock(identifier.mutex);
    if (!identifier.resolving_information || identifier.information == nullptr)
      return because(ENOENT, "nothing was resolved: first rdma_resolve_addrinfo(), until its event");
    *information = std::exchange(identifier.information, nullptr);
    identifier.resolving_information = false;
    return 0;
  });
}
