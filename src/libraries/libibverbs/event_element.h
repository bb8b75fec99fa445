// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// The kind of object that an event is about, which is a pointer in ibv_async_event::element. kNone for events
// of a port or the device.
enum class EventElement { kNone, kCq, kQp, kSrq, kWq };

constexpr EventElement element_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return EventElement::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventElement::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventElement::kSrq;
    case IBV_EVENT_WQ_FATAL:
      return EventElement::kWq;
    default:
      return EventElement::kNone;
  }
}

}  // namespace verbena::verbs
