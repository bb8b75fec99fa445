// SPDX-License-Identifier: Apache-2.0
// Measures the RC state machines: no wire, no CRC, and no copy except into the receiver's memory. One
// iteration is one packet, from the posted request to the polled completion of its side.
#include <vector>

#include <benchmark/benchmark.h>

#include "adapter/transport/support/endpoint.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {
namespace {

using roce::Operation;

constexpr uint32_t kBatch = 32;  // requests per batch and per acknowledgement

// Drops all packets but records the last PSN.
class NullSink : public PacketSink {
 public:
  SendStatus send(const OutgoingPacket& packet) override {
    benchmark::DoNotOptimize(packet.headers);
    last = packet.headers.psn;
    ++packets;
    return SendStatus::kSent;
  }
  roce::Psn last;
  uint64_t packets = 0;
};

struct Bench {
  Bench() {
    e.attributes().path_mtu = 4096;
    e.routes.route.sink = &sink;
    e.bring_up();
  }
  roce::Headers headers(Operation operation, roce::Psn psn) {
    roce::Headers h = rc_headers(operation, psn.value());
    h.syndrome = roce::ack_syndrome();
    return h;
  }
  Verdict feed(const roce::Headers& h, ConstBytes payload = {}) {
    const roce::Packet packet{h, payload};
    return e.qp->on_packet({packet, from, 0}, e.now);
  }
  uint32_t drain(queues::CompletionQueue& cq) {
    ibv_wc wc[kBatch];
    return static_cast<uint32_t>(cq.poll(kBatch, wc));
  }

  Endpoint<RcQueuePair> e{{.send_requests = 128, .recv_requests = 128}};
  Buffer& memory = e.memory.add(1 << 20);
  roce::Path from = path_between(e.attributes().path.destination, e.attributes().path.source);
  NullSink sink;
};

void requester(benchmark::State& state, ibv_wr_opcode opcode, uint32_t length, unsigned flags) {
  Bench b;
  ibv_sge sge = b.memory.sge(0, length);
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = flags;
  while (state.KeepRunningBatch(kBatch)) {
    for (uint32_t i = 0; i < kBatch; ++i) post_send(*b.e.qp, wr);
    uint32_t done = 0;
    while (done < kBatch) {
      b.e.qp->transmit(b.e.now, 1000, true);
      b.feed(b.headers(Operation::kAcknowledge, b.sink.last));
      done += b.drain(*b.e.send_cq);
    }
  }
}
BENCHMARK_CAPTURE(requester, send_64_inline, IBV_WR_SEND, 64u, unsigned{IBV_SEND_INLINE});
BENCHMARK_CAPTURE(requester, send_64, IBV_WR_SEND, 64u, 0u);
BENCHMARK_CAPTURE(requester, write_64, IBV_WR_RDMA_WRITE, 64u, 0u);
BENCHMARK_CAPTURE(requester, write_4096, IBV_WR_RDMA_WRITE, 4096u, 0u);

// Sends the packets of one long message.
void requester_long_write(benchmark::State& state) {
  Bench b;
  constexpr uint32_t kPackets = 256;
  ibv_sge sge = b.memory.sge(0, kPackets * 4096);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  while (state.KeepRunningBatch(kPackets)) {
    post_send(*b.e.qp, wr);
    while (b.e.send_cq->empty()) {
      b.e.qp->transmit(b.e.now, 1000, true);
      b.feed(b.headers(Operation::kAcknowledge, b.sink.last));
    }
    b.drain(*b.e.send_cq);
  }
}
BENCHMARK(requester_long_write);

void requester_read_response(benchmark::State& state) {
  Bench b;
  const std::vector<std::byte> payload(4096);
  ibv_sge sge = b.memory.sge(0, 4096);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  for (auto _ : state) {
    post_send(*b.e.qp, wr);
    b.e.qp->transmit(b.e.now, 1000, true);
    b.feed(b.headers(Operation::kReadResponseOnly, b.sink.last), payload);
    b.drain(*b.e.send_cq);
  }
}
BENCHMARK(requester_read_response);

void responder_send(benchmark::State& state) {
  Bench b;
  const std::vector<std::byte> payload(static_cast<size_t>(state.range(0)));
  ibv_sge sge = b.memory.sge(0, 4096);
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  roce::Psn psn = b.e.attributes().receive_psn;
  while (state.KeepRunningBatch(kBatch)) {
    for (uint32_t i = 0; i < kBatch; ++i) post_recv(*b.e.qp, wr);
    for (uint32_t i = 0; i < kBatch; ++i) {
      roce::Headers h = b.headers(Operation::kSendOnly, psn);
      h.ack_request = i + 1 == kBatch;
      b.feed(h, payload);
      ++psn;
    }
    b.e.qp->transmit(b.e.now, 1000, true);
    b.drain(*b.e.recv_cq);
  }
}
BENCHMARK(responder_send)->Arg(64)->Arg(4096);

void responder_write(benchmark::State& state) {
  Bench b;
  const std::vector<std::byte> payload(static_cast<size_t>(state.range(0)));
  roce::Psn psn = b.e.attributes().receive_psn;
  while (state.KeepRunningBatch(kBatch)) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      roce::Headers h = b.headers(Operation::kWriteOnly, psn);
      h.address = b.memory.address();
      h.rkey = b.memory.key();
      h.dma_length = static_cast<uint32_t>(payload.size());
      h.ack_request = i + 1 == kBatch;
      b.feed(h, payload);
      ++psn;
    }
    b.e.qp->transmit(b.e.now, 1000, true);
  }
}
BENCHMARK(responder_write)->Arg(64)->Arg(4096);

void responder_read_response(benchmark::State& state) {
  Bench b;
  constexpr uint32_t kPackets = 16;
  roce::Psn psn = b.e.attributes().receive_psn;
  while (state.KeepRunningBatch(kPackets)) {
    roce::Headers h = b.headers(Operation::kReadRequest, psn);
    h.address = b.memory.address();
    h.rkey = b.memory.key();
    h.dma_length = kPackets * 4096;
    b.feed(h);
    b.e.qp->transmit(b.e.now, 1000, true);
    psn = psn + kPackets;
  }
}
BENCHMARK(responder_read_response);

}  // namespace
}  // namespace verbena::transport
