// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "adapter/transport/stand_in.h"
#include "adapter/transport/support/endpoint.h"

namespace verbena::transport {

// A process that owns a shared receive queue for XRC, to which XRC targets in other processes forward
// requests. It has its memory, its queue, and a stand-in for one target. Requests and answers wait until the
// test moves them.
class QueueOwner final : public StandInAnswers {
 public:
  static constexpr uint64_t kDomain = 9;  // this process's number of the domain
  static constexpr memory::PdId kPd = 33;

  explicit QueueOwner(uint32_t its_slot) : slot(its_slot), table(its_slot) {
    cq = *queues::CompletionQueue::create(1 << 12, &log);
    srq = *queues::SharedReceiveQueue::create({.requests = 1 << 10,
                                               .sges = 2,
                                               .pd = kPd,
                                               .cq = cq.get(),
                                               .number = *table.reserve(),
                                               .xrc_domain = kDomain});
    table.add(*srq);
  }

  uint32_t number() const { return srq->number(); }

  void post(uint64_t wr_id, ibv_sge piece) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(*srq, wr));
  }

  // Queues a request that a target forwards.
  void queue(const ForwardedRequest& request) {
    arriving.push_back({request.packet.headers,
                        {request.packet.payload.begin(), request.packet.payload.end()},
                        request.target.attributes(),
                        request.target.config().qpn,
                        request.run,
                        request.msn,
                        request.repeated});
  }
  // Executes the oldest request. REQUIRES: there is one.
  void take_next() {
    const Arriving next = std::move(arriving.front());
    arriving.pop_front();
    if (stand_in == nullptr) {
      if (next.repeated) return;
      QpConfig config;
      config.qpn = next.qpn;
      config.keys = &memory.keys();
      config.srqs = &table;
      config.xrc_domain = kDomain;
      config.routes = &routes;
      stand_in = std::make_unique<StandIn>(config, *this);
      stand_in->attributes() = next.attributes;
      stand_in->begin();
    }
    roce::Headers headers = next.headers;
    headers.ack_request = true;
    if (!next.repeated) stand_in->follow(next.run, headers.psn, next.msn);
    const roce::Path& path = stand_in->attributes().path;
    const roce::Packet packet{headers, next.payload};
    stand_in->on_packet({packet, path_between(path.destination, path.source), 0}, TimePoint{});
    stand_in->answer_lost_completions();
  }
  void transmit(uint32_t budget = 1000) {
    if (stand_in != nullptr && stand_in->has_urgent()) stand_in->transmit(TimePoint{}, budget, true);
  }
  void end_target() {
    if (stand_in != nullptr && stand_in->state() != IBV_QPS_ERR) stand_in->enter(IBV_QPS_ERR);
    stand_in.reset();
  }

  struct Arriving {
    roce::Headers headers;
    std::vector<std::byte> payload;
    QpAttributes attributes;
    roce::Qpn qpn;
    uint32_t run, msn;
    bool repeated;
  };
  const uint32_t slot;
  TestMemory memory;
  EventLog log;
  queues::SharedReceiveQueueTable table;
  std::unique_ptr<queues::CompletionQueue> cq;
  std::unique_ptr<queues::SharedReceiveQueue> srq;
  std::unique_ptr<StandIn> stand_in;
  std::deque<Arriving> arriving;
  std::deque<OwnerAnswer> answers;
  RecordingSink wire;  // towards the requester
  TestRoutes routes{wire};

 private:
  void answer(const StandIn&, const OwnerAnswer& answer, bool) override {
    answers.push_back(answer);
    answers.back().owner = slot;
  }
};

}  // namespace verbena::transport
