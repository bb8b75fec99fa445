// SPDX-License-Identifier: Apache-2.0
// Handles a session's events of librdmacm and its completions.
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include <poll.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/rping/session.h"

namespace verbena::rdma_core {
namespace {

constexpr int kMilliseconds = 10000;

}  // namespace

bool Session::missed(const char* name) const {
  if (!failed_by_event_) complain(verbena::format("wait for {} state {}", name, static_cast<int>(step_)));
  return false;
}

bool Session::await(Step wanted, const char* name) {
  while (step_ != wanted) {
    if (at_end() || !progress()) return missed(name);
  }
  return true;
}

bool Session::await_connected() {
  while (!established_ && step_ != Step::kReadAdvertised) {
    if (at_end() || !progress()) return missed("CONNECTED");
  }
  return true;
}

bool Session::progress() {
  std::array<pollfd, 2> listened = {{{channel_->fd, POLLIN, 0}, {-1, POLLIN, 0}}};
  if (completions_) listened[1].fd = completions_->fd;
  int ready = poll(listened.data(), listened.size(), kMilliseconds);
  if (ready == 0) {
    complain(
        verbena::format("still waiting for the {}, which says nothing", plan_.server ? "client" : "server"));
    ready = poll(listened.data(), listened.size(), -1);
  }
  if (ready < 0) return errno == EINTR || failed("poll") == 0;
  // Handle completions before the event: messages that arrived before the disconnect must not be lost.
  if (listened[1].revents != 0) take_completions();
  if (listened[0].revents == 0) return true;
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel_, &event) != 0) return failed("rdma_get_cm_event") == 0;
  const Event owned(event);
  if (completions_ && event->event == RDMA_CM_EVENT_DISCONNECTED) take_completions();
  take_event(*event);
  return true;
}

void Session::fail(const std::string& sentence, const std::string& remedy) {
  complain(sentence, remedy);
  step_ = Step::kError;
}

void Session::take_event(const rdma_cm_event& event) {
  debug("cma_event type %s cma_id %p (%s)\n", rdma_event_str(event.event), static_cast<void*>(event.id),
        plan_.server ? "child" : "parent");
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      step_ = Step::kAddressResolved;
      if (rdma_resolve_route(id_, 2000) != 0) {
        failed("rdma_resolve_route");
        step_ = Step::kError;
      }
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      step_ = Step::kRouteResolved;
      return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      debug("CONNECT_RESPONSE\n");
      step_ = Step::kConnected;
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      debug("ESTABLISHED\n");
      established_ = true;
      if (!plan_.server) step_ = Step::kConnected;
      return;
    case RDMA_CM_EVENT_DISCONNECTED:
      complain(verbena::format("{} DISCONNECT EVENT...", plan_.server ? "server" : "client"));
      step_ = Step::kDisconnected;
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      failed_by_event_ = true;
      fail(verbena::format("cma event {}, error {}", rdma_event_str(event.event), event.status),
           remedy_for(event.event));
      return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      failed_by_event_ = true;
      fail("cma detected device removal!!!!");
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      complain(verbena::format("unhandled event: {}, ignoring", rdma_event_str(event.event)));
  }
}

void Session::take_completions() {
  pollfd listened = {completions_->fd, POLLIN, 0};
  if (poll(&listened, 1, 0) == 1) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(completions_.get(), &queue, &context) != 0) return fail("Failed to get cq event!");
    ibv_ack_cq_events(queue, 1);
    if (ibv_req_notify_cq(queue_.get(), 0) != 0) return fail("Failed to set notify!");
  }
  ibv_wc completion;
  int found = 0;
  while ((found = ibv_poll_cq(queue_.get(), 1, &completion)) == 1) take(completion);
  if (found < 0) fail(verbena::format("poll error {}", found));
}

void Session::take(const ibv_wc& completion) {
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return;  // the connection ends; an event follows
  if (completion.status != IBV_WC_SUCCESS) {
    return fail(verbena::format("cq completion failed status {}", static_cast<int>(completion.status)),
                ibv_wc_status_str(completion.status));
  }
  switch (completion.opcode) {
    case IBV_WC_SEND:
      debug("send completion\n");
      return;
    case IBV_WC_RDMA_WRITE:
      debug("rdma write completion\n");
      step_ = Step::kWriteComplete;
      return;
    case IBV_WC_RDMA_READ:
      debug("rdma read completion\n");
      step_ = Step::kReadComplete;
      return;
    case IBV_WC_RECV:
      debug("recv completion\n");
      take_message(completion);
      if (step_ != Step::kError && !post_receive()) step_ = Step::kError;
      return;
    default:
      fail(verbena::format("unknown completion {}", static_cast<int>(completion.opcode)));
  }
}

void Session::take_message(const ibv_wc& completion) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(received_.bytes.data());
  const auto message =
      completion.byte_len <= kAdvertisementBytes ? decode({bytes, completion.byte_len}) : std::nullopt;
  if (!message) {
    fail(verbena::format("Received bogus data, size {}", completion.byte_len), "the other end is no rping");
    return;
  }
  if (!plan_.server) {
    step_ = step_ == Step::kReadAdvertised ? Step::kWriteAdvertised : Step::kWriteComplete;
    return;
  }
  other_ = *message;
  debug("Received rkey %x addr %" PRIx64 " len %d from peer\n", other_.key, other_.address, other_.bytes);
  const bool first = step_ <= Step::kConnected || step_ == Step::kWriteComplete;
  step_ = first ? Step::kReadAdvertised : Step::kWriteAdvertised;
}

}  // namespace verbena::rdma_core
