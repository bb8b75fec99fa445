// SPDX-License-Identifier: Apache-2.0
// A peer that violates the protocol harms its own connection and nothing else. It consists of a connection
// manager identifier and a bare QP.
#include <array>
#include <cstring>
#include <deque>
#include <functional>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "libraries/rsockets/accept_queue.h"
#include "libraries/rsockets/stream_protocol.h"
#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

// The active side of a connection, controlled by the test.
class BarePeer {
 public:
  BarePeer() = default;
  ~BarePeer() {
    if (id_ == nullptr) return;
    if (id_->qp != nullptr) ::rdma_destroy_qp(id_);
    if (region_ != nullptr) ibv_dereg_mr(region_);
    ::rdma_destroy_id(id_);
  }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;

  // Connects with valid connection data as modified by `change`. Returns 0 or errno.
  int connect(in_port_t port, const std::function<void(std::array<std::byte, 40>&)>& change = {}) {
    Loopback there(AF_INET, port);
    if (::rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP) != 0) return errno;
    if (::rdma_resolve_addr(id_, nullptr, there.get(), 2000) != 0) return errno;
    if (::rdma_resolve_route(id_, 2000) != 0) return errno;
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap = {64, 64, 1, 1, 64};
    if (::rdma_create_qp(id_, nullptr, &attributes) != 0) return errno;
    region_ = ibv_reg_mr(id_->qp->pd, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_recv_wr receive{}, *bad;
    for (int i = 0; i < 64; ++i) ibv_post_recv(id_->qp, &receive, &bad);
    ConnectData data;
    data.credits = 60;
    data.table = {reinterpret_cast<uintptr_t>(memory_.data()), region_->rkey, kTableEntries};
    data.buffer = {reinterpret_cast<uintptr_t>(memory_.data()) + 64, region_->rkey, 1000};
    auto bytes = data.encode();
    if (change) change(bytes);
    rdma_conn_param parameters{};
    parameters.private_data = bytes.data();
    parameters.private_data_len = bytes.size();
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    if (::rdma_connect(id_, &parameters) != 0) return errno;
    const auto& answer = id_->event->param.conn;
    peer_ =
        *ConnectData::decode({static_cast<const std::byte*>(answer.private_data), answer.private_data_len});
    return 0;
  }

  // Writes `bytes` bytes to the peer's buffer with this immediate data.
  void write(uint32_t bytes, uint32_t immediate) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(memory_.data()) + 64, bytes, region_->lkey};
    ibv_send_wr request{}, *bad;
    request.sg_list = &piece;
    request.num_sge = bytes > 0 ? 1 : 0;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(immediate);
    request.wr.rdma.remote_addr = peer_.buffer.address;
    request.wr.rdma.rkey = peer_.buffer.key;
    ASSERT_EQ(ibv_post_send(id_->qp, &request, &bad), 0);
  }
  void send_nothing() {
    ibv_send_wr request{}, *bad;
    request.opcode = IBV_WR_SEND;
    ASSERT_EQ(ibv_post_send(id_->qp, &request, &bad), 0);
  }

 private:
  rdma_cm_id* id_ = nullptr;
  ibv_mr* region_ = nullptr;
  alignas(16) std::array<std::byte, 4096> memory_{};
  ConnectData peer_;
};

// Asks for a connection, and never confirms the answer: without a queue pair, only rdma_establish() does.
class UnconfirmedPeer {
 public:
  explicit UnconfirmedPeer(in_port_t port) {
    static uint32_t queue_pair = 0x1000;
    Loopback there(AF_INET, port);
    ConnectData data;
    data.table = {0, 0, kTableEntries};
    const auto bytes = data.encode();
    rdma_conn_param parameters{};
    parameters.private_data = bytes.data();
    parameters.private_data_len = bytes.size();
    parameters.qp_num = ++queue_pair;
    EXPECT_EQ(::rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP), 0) << errno;
    EXPECT_EQ(::rdma_resolve_addr(id_, nullptr, there.get(), 2000), 0) << errno;
    EXPECT_EQ(::rdma_resolve_route(id_, 2000), 0) << errno;
    EXPECT_EQ(::rdma_connect(id_, &parameters), 0) << errno;
  }
  ~UnconfirmedPeer() { ::rdma_destroy_id(id_); }
  UnconfirmedPeer(const UnconfirmedPeer&) = delete;
  UnconfirmedPeer& operator=(const UnconfirmedPeer&) = delete;

  rdma_cm_event_type next_event() {
    rdma_cm_event* event;
    EXPECT_EQ(::rdma_get_cm_event(id_->channel, &event), 0) << errno;
    const rdma_cm_event_type type = event->event;
    ::rdma_ack_cm_event(event);
    return type;
  }

 private:
  rdma_cm_id* id_ = nullptr;
};

TEST(UnconfirmedPeers, TakeNoPlaceInTheBacklog) {
  const Rsocket from = listener(0);
  const UnconfirmedPeer peer(port_of(from));
  const Rsocket client(::rsocket(AF_INET, SOCK_STREAM, 0));
  set_nonblocking(client);
  EXPECT_EQ(connect_to(client, port_of(from)), -1);
  EXPECT_EQ(poll_for(client, POLLOUT), POLLOUT);
}

TEST(UnconfirmedPeers, OldestIsRefusedForANewcomer) {
  const Rsocket from = listener(0);
  UnconfirmedPeer oldest(port_of(from));
  std::deque<UnconfirmedPeer> others;
  const size_t most = ListenerShares().half_open();
  for (size_t i = 0; i < most; ++i) others.emplace_back(port_of(from));
  EXPECT_EQ(oldest.next_event(), RDMA_CM_EVENT_REJECTED);
}

class HostilePeer : public ::testing::Test {
 protected:
  // Makes a connection whose client is the hostile peer. Everything else must go on working.
  void meet(const std::function<void(std::array<std::byte, 40>&)>& change = {}) {
    ASSERT_EQ(peer_.connect(port_of(from_), change), 0) << errno;
    victim_ = Rsocket(::raccept(from_, nullptr, nullptr));
    ASSERT_GE(victim_, 0) << errno;
  }
  void expect_broken(int error) {
    char byte;
    EXPECT_EQ(::rrecv(victim_, &byte, 1, 0), -1);
    EXPECT_EQ(errno, error);
    EXPECT_EQ(::rrecv(victim_, &byte, 1, 0), 0) << "the error is told once";
  }
  void TearDown() override {
    Pair other(from_, AF_INET);
    send_text(other.client, "still here");
    EXPECT_EQ(receive_text(other.server), "still here");
  }

  Rsocket from_ = listener();
  BarePeer peer_;
  Rsocket victim_;
};

TEST_F(HostilePeer, GoodOneIsUnderstood) {
  meet();
  peer_.write(5, Message{Operation::kData, 5}.encode());
  EXPECT_EQ(receive_text(victim_), std::string(5, '\0'));
}

TEST_F(HostilePeer, OfAnotherVersionIsRefused) {
  EXPECT_EQ(peer_.connect(port_of(from_), [](auto& data) { data[0] = std::byte{9}; }), ECONNREFUSED);
}

TEST_F(HostilePeer, WithoutARoomyTableIsRefused) {
  EXPECT_EQ(peer_.connect(port_of(from_), [](auto& data) { std::memset(&data[8], 0, 16); }), ECONNREFUSED);
}

TEST_F(HostilePeer, ThatClaimsMoreBytesThanItWasGrantedIsCutOff) {
  meet();
  peer_.write(5, Message{Operation::kData, kMaxMessageValue}.encode());
  expect_broken(EPROTO);
}

TEST_F(HostilePeer, ThatSendsDataOfNothingIsCutOff) {
  meet();
  peer_.write(0, Message{Operation::kData, 0}.encode());
  expect_broken(EPROTO);
}

TEST_F(HostilePeer, ThatSendsReservedMessagesIsCutOff) {
  meet();
  peer_.write(0, 3u << 29);
  expect_broken(EPROTO);
}

TEST_F(HostilePeer, ThatSendsInPlaceOfWritingIsCutOff) {
  meet();
  peer_.send_nothing();
  expect_broken(EPROTO);
}

TEST_F(HostilePeer, WhoseTableIsNotItsOwnLosesTheConnection) {
  // The rsocket grants a buffer at once, with a WRITE into a table that does not exist.
  meet([](auto& data) { data[16] = ~data[16]; });
  expect_broken(EIO);
}

TEST_F(HostilePeer, WhoseBufferIsNotItsOwnLosesTheConnectionWhenDataAreSent) {
  meet([](auto& data) { data[32] = ~data[32]; });
  (void)::rsend(victim_, "x", 1, 0);
  expect_broken(EIO);
}

TEST_F(HostilePeer, UnknownControlMessagesAreNothing) {
  meet();
  peer_.write(0, Message{Operation::kControl, 77}.encode());
  peer_.write(3, Message{Operation::kData, 3}.encode());
  EXPECT_EQ(receive_text(victim_), std::string(3, '\0'));
}

TEST_F(HostilePeer, CreditsOutOfNowhereDoNoHarm) {
  meet();
  for (uint32_t i = 0; i < 40; ++i) peer_.write(0, Message{Operation::kCredits, i * 777}.encode());
  peer_.write(3, Message{Operation::kData, 3}.encode());
  EXPECT_EQ(receive_text(victim_), std::string(3, '\0'));
  (void)::rsend(victim_, "x", 1, MSG_DONTWAIT);
}

// WRITEs as long as a grant, but not into the grant table.
TEST_F(HostilePeer, GrantsOfNothingDoNoHarm) {
  meet();
  for (int i = 0; i < 40; ++i) peer_.write(BufferAddress::kBytes, Message{Operation::kCredits, 60}.encode());
  peer_.write(3, Message{Operation::kData, 3}.encode());
  EXPECT_EQ(receive_text(victim_), std::string(3, '\0'));
  EXPECT_EQ(::rsend(victim_, "x", 1, MSG_DONTWAIT), 1);
}

}  // namespace
}  // namespace verbena::rsockets::testing
