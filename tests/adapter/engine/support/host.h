// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/support/queue_port.h"
#include "adapter/memory/guarded.h"
#include "adapter/memory/key_table.h"
#include "adapter/transport/rc.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// A host with a shard, an optional engine thread, an RC queue pair and a registered buffer. The test acts as
// the application.
class Host : public queues::CompletionListener, private transport::QpEventListener {
 public:
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr uint32_t kRequests = 64;

  Host(uint32_t slot, PacketQueue& out, PacketQueue& in, const transport::Traits& traits = net::kUdpTraits)
      : buffer(kBufferBytes) {
    memory::install_fault_guard();
    auto queue_port = std::make_unique<QueuePort>(out, in, traits);
    port = queue_port.get();
    shard = std::make_unique<Shard>(slot, only(std::move(queue_port)), *status_, slot);
    send_cq = *queues::CompletionQueue::create(4 * kRequests, this);
    recv_cq = *queues::CompletionQueue::create(4 * kRequests, this);
    region_.base = buffer.data();
    region_.iova = reinterpret_cast<uint64_t>(buffer.data());
    region_.length = buffer.size();
    region_.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    region_.pd = kPd;
    shard->exclusively([&] {
      EXPECT_TRUE(keys_.insert(&region_));
      transport::QpConfig config;
      config.qpn = shard->reserve_qpn().value();
      config.pd = kPd;
      config.signal_all = true;
      config.send_cq = send_cq.get();
      config.recv_cq = recv_cq.get();
      config.keys = &keys_;
      config.routes = &shard->routes();
      config.listener = this;
      config.counters = &shard->status_of(config.qpn).counters;
      config.least_ack_timeout = std::chrono::milliseconds(30);
      qp = std::make_unique<transport::RcQueuePair>(config,
                                                    *queues::SendQueue::create(kRequests, queues::kMaxInline),
                                                    *queues::RecvQueue::create(kRequests, sizeof(ibv_sge)));
      shard->add(*qp);
    });
  }
  ~Host() override {
    stop_engine();
    shard->exclusively([&] { shard->remove(*qp); });
  }

  void start_engine() {
    auto started = EngineThread::start(*shard, -1, [] { return -1; });
    ASSERT_TRUE(started);
    engine_ = std::move(*started);
  }
  void stop_engine() { engine_.reset(); }

  void connect_to(const Host& peer, uint8_t retries) {
    shard->exclusively([&] {
      transport::QpAttributes& attributes = qp->attributes();
      attributes.destination = peer.qp->config().qpn;
      attributes.path_mtu = 1024;
      attributes.access = region_.access;
      attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
      attributes.min_rnr_timer = 1;  // 10 us
      attributes.timeout = retries > 0 ? 1 : 0;
      attributes.retry_count = retries;
      attributes.rnr_retry = 7;  // infinite
      for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) qp->enter(state);
      shard->touched(*qp);
    });
  }

  // ---- verbs of the application

  bool post_send(ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t bytes,
                 const Host* target = nullptr) {
    {
      const std::lock_guard guard(qp->send_lock());
      queues::SendWqe* wqe = qp->send_queue().reserve();
      if (wqe == nullptr) return false;
      *wqe = {};
      wqe->wr_id = wr_id;
      wqe->opcode = static_cast<uint8_t>(opcode);
      wqe->length = bytes;
      wqe->num_sge = 1;
      wqe->sge_space()[0] = sge(offset, bytes);
      if (target != nullptr) {
        wqe->remote_address = target->region_.iova + offset;
        wqe->rkey = target->region_.key;
      }
      qp->send_queue().publish();
    }
    shard->ring(*qp);
    return true;
  }

  void post_recv(uint64_t wr_id, size_t offset, uint32_t bytes) {
    const std::lock_guard guard(qp->recv_lock());
    queues::RecvWqe* wqe = qp->recv_queue().reserve();
    ASSERT_NE(wqe, nullptr);
    wqe->wr_id = wr_id;
    wqe->num_sge = 1;
    wqe->sge_space()[0] = sge(offset, bytes);
    qp->recv_queue().publish();
  }

  bool poll(queues::CompletionQueue& cq, ibv_wc& wc) {
    if (cq.poll(1, &wc) == 1) return true;
    shard->poll();
    return cq.poll(1, &wc) == 1;
  }

  void request_notification(queues::CompletionQueue& cq) {
    EXPECT_EQ(cq.arm(false), queues::CompletionQueue::Event::kNone);
    shard->expect_sleep();
  }

  uint64_t counter(transport::QpCounter which) {
    return shard->status_of(qp->config().qpn).counters[which].load();
  }

  std::vector<std::byte> buffer;
  std::unique_ptr<queues::CompletionQueue> send_cq;
  std::unique_ptr<queues::CompletionQueue> recv_cq;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<transport::RcQueuePair> qp;
  QueuePort* port = nullptr;
  std::atomic<int> completion_events{0};

 private:
  static constexpr memory::PdId kPd = 9;

  ibv_sge sge(size_t offset, uint32_t bytes) const { return {region_.iova + offset, bytes, region_.key}; }
  void on_completion_event() override { ++completion_events; }
  void on_overflow() override { ADD_FAILURE() << "completion queue overflow"; }
  void on_qp_event(ibv_event_type) override {}

  std::unique_ptr<protocol::StatusPage> status_ = std::make_unique<protocol::StatusPage>();
  memory::KeyTable keys_{1, 16};
  memory::Region region_;
  std::unique_ptr<EngineThread> engine_;
};

// Two connected hosts.
struct TwoHosts {
  explicit TwoHosts(uint8_t retries, const transport::Traits& traits = net::kUdpTraits)
      : a(1, a_to_b, b_to_a, traits), b(2, b_to_a, a_to_b, traits) {
    a.connect_to(b, retries);
    b.connect_to(a, retries);
  }
  PacketQueue a_to_b;
  PacketQueue b_to_a;
  Host a;
  Host b;
};

}  // namespace verbena::engine
