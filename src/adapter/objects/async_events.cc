// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/async_events.h"

#include "adapter/objects/completion_queues.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/qp.h"

namespace verbena::adapter {

int get_async_event(queues::EventChannel& channel, ibv_async_event* event) {
  const auto taken = channel.take([&](queues::EventSource& source) {
    const AsyncEvent& found = AsyncEvent::of(source);
    if (found.taken != nullptr) ++*found.taken;
    *event = found.event;
  });
  return taken ? 0 : taken.error().code;
}

void acknowledge_async_event(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: {
      ibv_cq* cq = event.element.cq;
      Cq::of(cq).account.acknowledge(cq->async_events_completed, 1);
      return;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      ibv_qp* qp = event.element.qp;
      Qp::of(qp).account.acknowledge(qp->events_completed, 1);
      return;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      ibv_srq* srq = event.element.srq;
      Srq::of(srq).account.acknowledge(srq->events_completed, 1);
      return;
    }
    case IBV_EVENT_WQ_FATAL: {
      ibv_wq* wq = event.element.wq;
      Wq::of(wq).account.acknowledge(wq->events_completed, 1);
      return;
    }
    default:  // an event of the port: no call waits for its acknowledgement
      return;
  }
}

}  // namespace verbena::adapter
