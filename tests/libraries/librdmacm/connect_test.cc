// SPDX-License-Identifier: Apache-2.0
// Connections between two identifiers of one process, through the agent.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/settle_context.h"
#include "libraries/librdmacm/support/connection.h"

namespace {

std::atomic<ibv_context*> settled{nullptr};  // the last settled context
std::function<void()> while_settling = [] {};

}  // namespace

// Interposes the function of libibverbs.
extern "C" [[gnu::visibility("default")]] void verbena_settle_context(ibv_context* context) noexcept {
  settled = context;
  while_settling();
  const auto own = reinterpret_cast<void (*)(ibv_context*)>(
      ::dlvsym(RTLD_NEXT, "verbena_settle_context", "VERBENA_PRIVATE_1"));
  if (own != nullptr) own(context);
}

namespace verbena::rdmacm::testing {
namespace {

TEST(Connecting, CarriesPrivateDataBothWaysInTheKernelsSizes) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect("hello");
  const Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.data.size(), 56U);  // the private data of a REQ without the part of the IP CM service
  EXPECT_EQ(request.data.substr(0, 5), "hello");
  EXPECT_EQ(request.listener, listener.id.get());
  const OwnId accepted(request.id);
  ibv_qp_init_attr attributes = small_qp();
  ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0);
  rdma_conn_param parameters = with_data("welcome");
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);
  const Heard established = hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.data.size(), 196U);  // the private data of a REP
  EXPECT_EQ(established.data.substr(0, 7), "welcome");
  EXPECT_EQ(hear(listener.channel.get(), RDMA_CM_EVENT_ESTABLISHED).id, accepted.get());
}

TEST(Connecting, MovesDataBothWaysAndEnds) {
  Connection connection;
  exchange(connection.caller.id.get(), connection.accepted.get());
  exchange(connection.accepted.get(), connection.caller.id.get());
  ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
  EXPECT_EQ(hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED).id,
            connection.accepted.get());
  ASSERT_EQ(rdma_disconnect(connection.accepted.get()), 0);
  hear(connection.caller.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
}

// A program that destroys its QP at this event must have the completions of everything received before.
TEST(Connecting, HearsOfItsEndWhenAllThatHasComeIsComplete) {
  Connection connection;
  ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
  ASSERT_TRUE(readable(connection.listener.channel.get(), kPatienceMs));
  settled = nullptr;
  hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(settled.load(), connection.accepted->verbs);
}

// Whether the thread waits in futex(2), by proc(5).
bool waits_for_a_lock(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long call = -1;
  return (file >> call) && call == SYS_futex;
}

TEST(Connecting, QueuePairStaysWhileAnEventIsProcessed) {
  Connection connection;
  ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
  std::thread other;
  while_settling = [&] {
    std::atomic<pid_t> thread = 0;
    std::atomic<bool> is_destroyed = false;
    other = std::thread([&] {
      thread = ::gettid();
      rdma_destroy_qp(connection.accepted.get());
      is_destroyed = true;
    });
    while (!is_destroyed && (thread == 0 || !waits_for_a_lock(thread))) std::this_thread::yield();
    EXPECT_FALSE(is_destroyed);
  };
  hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  while_settling = [] {};
  other.join();
  EXPECT_EQ(connection.accepted->qp, nullptr);
}

// Breaks the QP, so that librdmacm cannot connect it.
void break_qp(rdma_cm_id& id) {
  ibv_qp_attr broken{};
  broken.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(id.qp, &broken, IBV_QP_STATE), 0);
}

// Otherwise the peer would wait for an RTU that never comes: 15 times as long as the MRA says.
TEST(Connecting, TellsThePeerWhenItsQueuePairCannotBeConnected) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId accepted(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ibv_qp_init_attr attributes = small_qp();
  ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0);
  rdma_conn_param parameters = with_data("");
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);
  break_qp(*caller.id);
  EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_CONNECT_ERROR).status, -EINVAL);
  EXPECT_EQ(hear(listener.channel.get(), RDMA_CM_EVENT_REJECTED).status, 28);  // consumer reject
}

TEST(Connecting, TellsThePeerWhenTheAcceptingQueuePairCannotBeConnected) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId accepted(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ibv_qp_init_attr attributes = small_qp();
  ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0);
  break_qp(*accepted);
  rdma_conn_param parameters = with_data("");
  EXPECT_EQ(rdma_accept(accepted.get(), &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED).status, 28);  // consumer reject
}

TEST(Connecting, EndsWhenBothSidesDisconnectAtOnce) {
  Connection connection;
  ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
  ASSERT_EQ(rdma_disconnect(connection.accepted.get()), 0);
  EXPECT_EQ(hear(connection.caller.channel.get(), RDMA_CM_EVENT_DISCONNECTED).status, 0);
  EXPECT_EQ(hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED).status, 0);
}

TEST(Connecting, TellsThePeerWhenAnIdentifierIsDestroyed) {
  Connection connection;
  connection.accepted.reset();
  hear(connection.caller.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(Connecting, FillsTheIdentifierAsRdmaCoreDoes) {
  Connection connection;
  const rdma_cm_id& caller = *connection.caller.id;
  const rdma_cm_id& accepted = *connection.accepted;
  EXPECT_NE(caller.verbs, nullptr);
  EXPECT_EQ(caller.verbs, accepted.verbs);
  EXPECT_EQ(caller.pd, accepted.pd);
  EXPECT_EQ(caller.port_num, 1);
  EXPECT_EQ(caller.qp->state, IBV_QPS_RTS);
  ASSERT_EQ(caller.route.num_paths, 1);
  EXPECT_EQ(caller.route.path_rec->pkey, 0xffff);
  EXPECT_EQ(caller.route.path_rec->mtu_selector, 2);
  EXPECT_GE(caller.route.path_rec->mtu, IBV_MTU_1024);
  EXPECT_EQ(caller.route.addr.addr.ibaddr.pkey, 0xffff);
  EXPECT_EQ(std::memcmp(&caller.route.addr.addr.ibaddr.dgid, &accepted.route.addr.addr.ibaddr.sgid, 16), 0);
  EXPECT_EQ(ntohs(rdma_get_dst_port(connection.caller.id.get())), connection.listener.port);
  EXPECT_EQ(rdma_get_src_port(connection.caller.id.get()), rdma_get_dst_port(connection.accepted.get()));
  EXPECT_EQ(accepted.route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST(Connecting, IsRefusedWhereNobodyListens) {
  uint16_t port;
  {
    Listener gone;
    port = gone.port;
  }
  Caller caller(port);
  caller.create_qp();
  caller.connect();
  EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED).status, 8);  // invalid service ID
}

// One side begins to listen while the other connects, as with perftest's -R.
TEST(Connecting, FindsAListenerThatComesAMomentLater) {
  Listener elsewhere;
  uint16_t port;
  {
    Listener gone;
    port = gone.port;
  }
  Caller caller(port);
  caller.create_qp();
  caller.connect();
  const OwnChannel channel = make_channel();
  const OwnId late = make_id(channel.get());
  sockaddr_in address = ipv4("127.0.0.1", port);
  ASSERT_EQ(rdma_bind_addr(late.get(), generic(address)), 0) << std::strerror(errno);
  ASSERT_EQ(rdma_listen(late.get(), 1), 0) << std::strerror(errno);
  const OwnId request(hear(channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST(Connecting, IsRejectedWithTheListenersPrivateData) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ASSERT_EQ(rdma_reject(request.get(), "no", 2), 0);
  const Heard rejected = hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.data.size(), 148U);
  EXPECT_EQ(rejected.data.substr(0, 2), "no");
  EXPECT_EQ(caller.id->qp->state, IBV_QPS_ERR);
}

// Rejects a request whose answer cannot be sent, as the kernel's rdma_accept() does.
TEST(Connecting, IsRejectedWhenItCannotBeAccepted) {
  for (const size_t too_much : {197, 255}) {
    Listener listener;
    Caller caller(listener.port);
    caller.create_qp();
    caller.connect();
    const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
    ibv_qp_init_attr attributes = small_qp();
    ASSERT_EQ(rdma_create_qp(request.get(), nullptr, &attributes), 0);
    const std::string data(too_much, 'x');
    rdma_conn_param parameters = with_data(data.c_str());
    EXPECT_EQ(rdma_accept(request.get(), &parameters), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED).status, 28);
    EXPECT_EQ(request->qp->state, IBV_QPS_ERR);
    parameters = with_data("welcome");
    EXPECT_EQ(rdma_accept(request.get(), &parameters), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_reject(request.get(), nullptr, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(readable(listener.channel.get(), 0));
  }
}

// As in the kernel, the identifier keeps its route when rdma_connect() fails, and may connect again.
TEST(Connecting, MayBeTriedAgainAfterTooMuchPrivateData) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  for (const size_t too_much : {57, 255}) {
    const std::string data(too_much, 'x');
    rdma_conn_param parameters = with_data(data.c_str());
    EXPECT_EQ(rdma_connect(caller.id.get(), &parameters), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  caller.connect("hello");
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

// A rejection that cannot be sent has no effect.
TEST(Connecting, MayBeAcceptedAfterARejectionWithTooMuchPrivateData) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  const std::string data(149, 'x');
  EXPECT_EQ(rdma_reject(request.get(), data.data(), static_cast<uint8_t>(data.size())), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp_init_attr attributes = small_qp();
  ASSERT_EQ(rdma_create_qp(request.get(), nullptr, &attributes), 0);
  ASSERT_EQ(rdma_accept(request.get(), nullptr), 0);
  hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

TEST(Connecting, IsRejectedForItsVendorsOptions) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ASSERT_EQ(rdma_reject_ece(request.get(), nullptr, 0), 0);
  EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED).status, 35);
}

TEST(Connecting, GoesToTheListenerOfItsPort) {
  Listener first, second;
  ASSERT_NE(first.port, second.port);
  Caller caller(second.port);
  caller.create_qp();
  caller.connect("to the second");
  const Heard request = hear(second.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.listener, second.id.get());
  EXPECT_FALSE(readable(first.channel.get(), 0));
  const OwnId unwanted(request.id);
}

TEST(Connecting, EndsWithItsListener) {
  auto listener = std::make_unique<Listener>();
  Caller caller(listener->port);
  caller.create_qp();
  caller.connect();
  ASSERT_TRUE(readable(listener->channel.get(), kPatienceMs));  // the event stays unread
  listener->id.reset();
  EXPECT_FALSE(readable(listener->channel.get(), 0));
  hear(caller.channel.get(), RDMA_CM_EVENT_REJECTED);
  // No other event: the agent is the same as before, and no event says otherwise.
  Listener another;
  EXPECT_FALSE(readable(caller.channel.get(), 0));
}

TEST(Connecting, IsDoneByManyThreadsAtOnce) {
  const auto connect_and_end = [] {
    for (int i = 0; i < 10; ++i) {
      Connection connection;
      exchange(connection.caller.id.get(), connection.accepted.get());
      EXPECT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
      hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(connect_and_end);
  for (std::thread& thread : threads) thread.join();
}

// The application creates its own QP, and moves it through its states with rdma_init_qp_attr(3).
class ExternalQp {
 public:
  explicit ExternalQp(rdma_cm_id* id) : id_(id) {
    cq_ = ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0);
    ibv_qp_init_attr attributes = small_qp();
    attributes.send_cq = attributes.recv_cq = cq_;
    qp_ = ibv_create_qp(id->pd, &attributes);
    EXPECT_NE(qp_, nullptr);
  }
  ~ExternalQp() {
    ibv_destroy_qp(qp_);
    ibv_destroy_cq(cq_);
  }
  void move_to(ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    ASSERT_EQ(rdma_init_qp_attr(id_, &attributes, &mask), 0) << std::strerror(errno);
    ASSERT_EQ(ibv_modify_qp(qp_, &attributes, mask), 0);
  }
  uint32_t number() const { return qp_->qp_num; }

 private:
  rdma_cm_id* id_;
  ibv_cq* cq_;
  ibv_qp* qp_;
};

TEST(ExternalQps, AreConnectedByTheApplication) {
  Listener listener;
  Caller caller(listener.port);
  ExternalQp active(caller.id.get());
  rdma_conn_param parameters = with_data("");
  parameters.qp_num = active.number();
  ASSERT_EQ(rdma_connect(caller.id.get(), &parameters), 0) << std::strerror(errno);

  const Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.connection.qp_num, active.number());
  const OwnId accepted(request.id);
  ExternalQp passive(accepted.get());
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) passive.move_to(state);
  parameters.qp_num = passive.number();
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);

  const Heard response = hear(caller.channel.get(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(response.connection.qp_num, passive.number());
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) active.move_to(state);
  ASSERT_EQ(rdma_establish(caller.id.get()), 0) << std::strerror(errno);
  hear(listener.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

TEST(ExternalQps, ExchangeTheirVendorsOptions) {
  Listener listener;
  Caller caller(listener.port);
  ExternalQp active(caller.id.get());
  ibv_ece ece{.vendor_id = 0x15b3, .options = 0x1234, .comp_mask = 0};
  ASSERT_EQ(rdma_set_local_ece(caller.id.get(), &ece), 0);
  rdma_conn_param parameters = with_data("");
  parameters.qp_num = active.number();
  ASSERT_EQ(rdma_connect(caller.id.get(), &parameters), 0);
  const OwnId accepted(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ibv_ece seen{};
  ASSERT_EQ(rdma_get_remote_ece(accepted.get(), &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3U);
  EXPECT_EQ(seen.options, 0x1234U);

  ece.options = 0x34;
  ASSERT_EQ(rdma_set_local_ece(accepted.get(), &ece), 0);
  ExternalQp passive(accepted.get());
  parameters.qp_num = passive.number();
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);
  hear(caller.channel.get(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_get_remote_ece(caller.id.get(), &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3U);
  EXPECT_EQ(seen.options, 0x34U);
}

TEST(SharedReceiveQueues, TakeTheMessagesOfAConnection) {
  Listener listener;
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  const OwnId accepted(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ibv_srq_init_attr shared{};
  shared.attr.max_wr = 4;
  shared.attr.max_sge = 1;
  ASSERT_EQ(rdma_create_srq(accepted.get(), nullptr, &shared), 0) << std::strerror(errno);
  ibv_qp_init_attr attributes = small_qp();
  ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0) << std::strerror(errno);
  EXPECT_EQ(accepted->qp->srq, accepted->srq);
  rdma_conn_param parameters = with_data("");
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0);
  hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  exchange(caller.id.get(), accepted.get());
}

// Both ends use rdma_create_ep(3), each in a thread because its calls block.
TEST(Endpoints, ConnectAndMoveData) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_PASSIVE;
  rdma_addrinfo* local = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "0", &hints, &local), 0);
  ibv_qp_init_attr attributes = small_qp();
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, local, nullptr, &attributes), 0) << std::strerror(errno);
  rdma_freeaddrinfo(local);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);
  const std::string port = std::to_string(ntohs(rdma_get_src_port(listener)));

  rdma_cm_id* active = nullptr;
  std::thread client([&] {
    rdma_addrinfo wanted{};
    wanted.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* remote = nullptr;
    ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", port.c_str(), &wanted, &remote), 0);
    ibv_qp_init_attr own = small_qp();
    ASSERT_EQ(rdma_create_ep(&active, remote, nullptr, &own), 0) << std::strerror(errno);
    rdma_freeaddrinfo(remote);
    ASSERT_EQ(rdma_connect(active, nullptr), 0) << std::strerror(errno);
  });
  rdma_cm_id* passive = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &passive), 0) << std::strerror(errno);
  ASSERT_NE(passive->qp, nullptr);
  ASSERT_EQ(rdma_accept(passive, nullptr), 0) << std::strerror(errno);
  client.join();
  ASSERT_NE(active, nullptr);
  exchange(active, passive);
  std::thread ending([&] { EXPECT_EQ(rdma_disconnect(active), 0) << std::strerror(errno); });
  EXPECT_EQ(rdma_disconnect(passive), 0) << std::strerror(errno);
  ending.join();
  rdma_destroy_ep(active);
  rdma_destroy_ep(passive);
  rdma_destroy_ep(listener);
}

TEST(Endpoints, AreRefusedWithoutAListener) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* remote = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "9", &hints, &remote), 0);
  ibv_qp_init_attr attributes = small_qp();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, remote, nullptr, &attributes), 0) << std::strerror(errno);
  rdma_freeaddrinfo(remote);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  rdma_destroy_ep(id);
}

}  // namespace
}  // namespace verbena::rdmacm::testing
