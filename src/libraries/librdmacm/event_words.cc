// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/event_words.h"

#include <new>
#include <string_view>

#include "base/failed_call.h"
#include "base/format.h"
#include "libraries/librdmacm/addresses.h"
#include "management/cm/event_names.h"

namespace verbena::rdmacm {
namespace {

std::string_view cause_of(const rdma_cm_event& event) {
  const std::string_view cause = cm::cause_of(event.event, event.status);
  return cause.empty() && event.status < 0 ? reason_of(-event.status) : cause;
}

}  // namespace

void say_failure(const Event& event) noexcept {
  if (log_level() >= LogLevel::kError && cm::is_failure(event.event)) log_error("{}", failure_words(event));
}

std::string failure_words(const Event& event) noexcept try {
  const std::string peer = event.id != nullptr ? text_of(event.id->route.addr.dst_storage) : std::string();
  const std::string_view cause = cause_of(event);
  return verbena::format("{}{}{}, status {}{}{}", rdma_event_str(event.event), peer.empty() ? "" : " for ",
                         peer, cm::status_text(event.event, event.status), cause.empty() ? "" : ": ", cause);
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace verbena::rdmacm
