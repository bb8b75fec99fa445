// SPDX-License-Identifier: Apache-2.0
#include "adapter/async_events.h"

#include <sys/eventfd.h>

namespace verbena::adapter {

const void* object_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    default:
      return nullptr;
  }
}

Result<std::unique_ptr<AsyncEvents>> AsyncEvents::create() {
  UniqueFd fd(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) return fail(errno);
  return std::unique_ptr<AsyncEvents>(new AsyncEvents(std::move(fd)));
}

void AsyncEvents::post(const ibv_async_event& event) {
  {
    const std::lock_guard guard(mutex_);
    events_.push_back(event);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

Result<void> AsyncEvents::wait() {
  uint64_t one;
  if (::read(fd_.get(), &one, sizeof one) < 0) return tl::unexpected(Error{errno});
  return {};
}

void AsyncEvents::forget(const void* object) {
  const std::lock_guard guard(mutex_);
  std::erase_if(events_, [&](const ibv_async_event& event) { return object_of(event) == object; });
}

}  // namespace verbena::adapter
