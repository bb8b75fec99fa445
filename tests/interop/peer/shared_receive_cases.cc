// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include <poll.h>

#include "interop/peer/cases.h"

namespace verbena::interop {
namespace {

void note_event(Session& session) {
  pollfd waiting{.fd = session.context()->async_fd, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, 2000) != 1) return session.note("no event");
  ibv_async_event event{};
  if (ibv_get_async_event(session.context(), &event)) return session.note("no event");
  session.note(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ? "LIMIT_REACHED"
                                                               : "event " + std::to_string(event.event_type));
  ibv_ack_async_event(&event);
}

// Three messages over two QPs take three of four receives, which drops below the SRQ limit. Then two messages
// find one receive.
void shared_receives(Session& session) {
  Region region{session.domain(), kAllRights};
  fill(region, session.is_client());
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  const SharedQueue shared{ibv_create_srq(session.domain(), &wanted)};
  if (!shared) throw std::runtime_error{"ibv_create_srq"};
  const PairRules rules{.rnr_retry = 2, .shared = session.is_client() ? nullptr : shared.get()};
  const Pair first = session.make_pair(rules);
  const Pair second = session.make_pair(rules);
  session.connect(first.get(), region, rules);
  session.connect(second.get(), region, rules);
  if (!session.is_client()) {
    for (std::uint32_t i = 0; i < 4; ++i) post_receive(first.get(), region.piece(256, 4096 * i));
    ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 2};
    if (const int error = ibv_modify_srq(shared.get(), &limit, IBV_SRQ_LIMIT))
      session.note("limit " + std::to_string(error));
  }
  session.peer().meet();
  if (session.is_client()) {
    ibv_sge piece = region.piece(100);
    for (ibv_qp* pair : {first.get(), second.get(), first.get(), second.get(), first.get()}) {
      ibv_send_wr wr = request(IBV_WR_SEND, piece);
      post(pair, wr);
      session.note_completions(1);
    }
  } else {
    session.note_completions(4);
    note_event(session);
    session.note(mark_of(region));
  }
  session.peer().meet();
  if (!session.is_client()) {
    session.note_end(first.get(), 0, false);
    session.note_end(second.get(), 0, false);
  }
}

}  // namespace

std::vector<Case> shared_receive_cases() {
  return {{"shared receive queue, limit, receiver not ready", shared_receives}};
}

}  // namespace verbena::interop
