// SPDX-License-Identifier: Apache-2.0
// A peer that sends arbitrary packets to an RC, a UC and a UD queue pair. They answer, fail or drop, and
// access only the memory that they were given. Run with the address and undefined-behavior sanitizers.
#include <cstring>

#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/uc.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena::transport {
namespace {

using fuzz::Choices;

// Corrections of a random packet, so that it gets past the first checks.
enum Help : uint8_t {
  kExpectedPsn = 1,   // the PSN that the responder waits for
  kAwaitedPsn = 2,    // a PSN that the requester waits for
  kRightKey = 4,      // the buffer's key
  kNearlyRight = 8,   // each of the above is off by one
  kLongPayload = 16,  // as long as the MTU
};

template <class Qp>
class Peer {
 public:
  Peer() : buffer_(endpoint_.memory.add(8192)) { endpoint_.attributes().qkey = 0x11; }

  // All inputs use the same QP: after a reset it is like a new one.
  void run(Choices choices) {
    std::memset(buffer_.data(), 0, buffer_.size());
    endpoint_.bring_up();
    while (!choices.empty()) {
      post(choices.byte());
      receive(choices);
      endpoint_.transmit();
      endpoint_.sink.packets.clear();
      pass_time(choices.byte());
      drain(*endpoint_.send_cq);
      drain(*endpoint_.recv_cq);
      if (endpoint_.qp->state() != IBV_QPS_RTS) {
        reset();
        endpoint_.bring_up();
      }
    }
    reset();
  }

 private:
  void post(uint8_t what) {
    ibv_sge sge = buffer_.sge(64, what * 8u + 8);
    if ((what & 1) != 0) {
      ibv_recv_wr receive{};
      receive.sg_list = &sge;
      receive.num_sge = 1;
      post_recv(*endpoint_.qp, receive);
    }
    if ((what & 2) == 0) return;
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    ibv_send_wr send{};
    send.opcode = std::is_same_v<Qp, UdQueuePair> ? IBV_WR_SEND : kOpcodes[(what >> 2) & 3];
    if (send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) sge.length = 8;
    send.sg_list = &sge;
    send.num_sge = 1;
    post_send(*endpoint_.qp, send, std::is_same_v<Qp, UdQueuePair> ? &endpoint_.attributes().path : nullptr);
  }

  void receive(Choices& choices) {
    const uint8_t help = choices.byte();
    const uint32_t mtu = endpoint_.attributes().path_mtu;
    const size_t payload = (help & kLongPayload) != 0 ? mtu : choices.byte() & ~3u;
    const uint8_t opcode = choices.byte();
    if (!roce::kOpcodes[opcode].exists()) return;
    std::vector<std::byte> bytes(roce::header_bytes(opcode) + payload + roce::kIcrcBytes);
    const ConstBytes written = choices.bytes(roce::header_bytes(opcode));
    if (!written.empty()) std::memcpy(bytes.data(), written.data(), written.size());
    bytes[0] = std::byte{opcode};
    bytes[1] &= std::byte{0xf0};
    auto packet = roce::parse(bytes);
    if (!packet) return;
    roce::Headers& headers = packet->headers;
    const uint32_t off = (help & kNearlyRight) != 0 ? 1 : 0;
    headers.pkey = roce::kDefaultPkey;
    if ((help & kExpectedPsn) != 0) headers.psn = endpoint_.qp->next_receive_psn() + off;
    if ((help & kAwaitedPsn) != 0) headers.psn = endpoint_.qp->next_send_psn() - 1 - off;
    if ((help & kRightKey) != 0) {
      headers.qkey = 0x11;
      headers.rkey = buffer_.key();
      headers.address = buffer_.address() + headers.address % 1024 * 8 + off;
      headers.dma_length %= 8192;
    }
    endpoint_.receive(headers, packet->payload);
  }

  void pass_time(uint8_t how) {
    endpoint_.now += std::chrono::microseconds(how);
    if (how < 0xf0 || endpoint_.qp->deadline() == kNever) return;
    endpoint_.now = endpoint_.qp->deadline();
    endpoint_.qp->on_timer(endpoint_.now);
  }

  static void drain(queues::CompletionQueue& cq) {
    ibv_wc wc[16];
    while (cq.poll(16, wc) > 0) {
    }
  }

  void reset() {
    endpoint_.qp->enter(IBV_QPS_ERR);
    VERBENA_REQUIRE(endpoint_.qp->send_queue().empty() && endpoint_.qp->recv_queue().empty());
    drain(*endpoint_.send_cq);
    drain(*endpoint_.recv_cq);
    endpoint_.qp->enter(IBV_QPS_RESET);
    endpoint_.log.events.clear();
  }

  Endpoint<Qp> endpoint_;
  Buffer& buffer_;
};

}  // namespace
}  // namespace verbena::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::transport;
  static Peer<RcQueuePair> rc;
  static Peer<UcQueuePair> uc;
  static Peer<UdQueuePair> ud;
  if (size == 0) return 0;
  const Choices choices(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      uc.run(choices);
      break;
    case 1:
      ud.run(choices);
      break;
    default:
      rc.run(choices);
  }
  return 0;
}
