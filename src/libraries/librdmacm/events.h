// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "base/failed_call.h"
#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

// Functions of rdma_cma.h since the headers of the build (RDMACM_1.4, rdma-core 60 and later).
extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** information);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument);
}

namespace verbena::rdmacm {

// enum rdma_cm_event_type, continued
inline constexpr int kAddressInformationResolved = 16;  // RDMA_CM_EVENT_ADDRINFO_RESOLVED
inline constexpr int kAddressInformationError = 17;     // RDMA_CM_EVENT_ADDRINFO_ERROR
inline constexpr int kUserEvent = 18;                   // RDMA_CM_EVENT_USER; its argument: param.arg

// rdma_addrinfo::ai_flags: the service to ask
inline constexpr int kFromSubnet = 0x10;  // RAI_SA
inline constexpr int kFromDns = 0x20;     // RAI_DNS

// The application's rdma_cm_event, from its delivery to its acknowledgement.
struct Event : rdma_cm_event {
  Event() : rdma_cm_event{} {}
  static Event& of(rdma_cm_event* event) { return *static_cast<Event*>(event); }

  // The identifier whose destruction waits for the acknowledgement; for a connection request, the listener.
  Identifier* owner = nullptr;
  uint32_t membership = 0;  // the number of the multicast membership; 0 for other events
  std::array<uint8_t, 256> private_data{};
};

// Waits for the next event of a channel that the application should see, and handles it with process(). The
// application must acknowledge() the returned event. Errors: those of Channel::next().
Result<Event*> next_event(Channel& channel);
void acknowledge(Event& event);

// Does librdmacm's work for an event message: updates the identifier, moves the QP to its next state, and
// fills `event`. Returns false if the application should not see the event.
bool process(Event& event, const protocol::CmEvent& message, Identifier& identifier);

// Finishes a call that starts an operation. For a synchronous identifier, waits for the event that ends the
// operation, and returns 0 or the errno value of its failure. For other identifiers, returns 0 at once.
int complete(Identifier& identifier);

// Explains a failed call in the log: names the identifier and its addresses. `code` is the errno value of the
// function `call`; if it is 0, does nothing. If the call does not fit the identifier's state (kCmWrongState),
// also names the state and the call that must come first. Does nothing unless errors are logged.
void explain_failure(Identifier& identifier, const char* call, int code) noexcept;

// Returns EINVAL and records that the identifier's state does not allow the current call.
inline int wrong_state() {
  return because(EINVAL, "{}", protocol::kCmWrongState);
}

// Logs the event as an error if its type reports a failure, such as RDMA_CM_EVENT_REJECTED.
void say_failure(const Event& event) noexcept;

// Describes a failure event for the log: the event, the peer's address, the status and its most probable
// cause. Returns an empty string if there is no memory.
std::string failure_words(const Event& event) noexcept;

}  // namespace verbena::rdmacm
