// SPDX-License-Identifier: Apache-2.0
// XRC domains that several processes have open: a target in one process delivers to shared receive queues in
// another.
#include <csignal>
#include <cstring>
#include <numeric>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/services.h"
#include "base/unique_fd.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kSlot = 4096;  // size of a receive; receive i begins at i * kSlot
constexpr size_t kOpen = 8 * kSlot;

// The values that the owner of a queue tells.
struct Owned {
  uint32_t number = 0;
  uint32_t rkey = 0;
  uint64_t buffer = 0;
};
struct Order {
  enum What : uint8_t { kPost, kComplete, kDestroyQueue, kEnd };
  What what = kEnd;
  uint64_t receive = 0;
};
struct Received {
  ibv_wc wc{};
  uint64_t sum = 0;  // of the received bytes
};
struct FileName {
  char text[64] = {};
};

uint64_t sum_of(const std::byte* at, size_t bytes) {
  return std::accumulate(at, at + bytes, uint64_t{0},
                         [](uint64_t sum, std::byte b) { return sum * 31 + static_cast<uint8_t>(b); });
}

UniqueFd open_file(const FileName& name) {
  UniqueFd fd(::open(name.text, O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(fd);
  return fd;
}

// A process with a queue in the domain of a file, which obeys orders.
const HelperBody queue_owner("queue-owner", [](Line& line) {
  Bench bench;
  const UniqueFd file = open_file(line.hear<FileName>());
  Xrcd domain = bench.make_domain(file.get());
  ASSERT_NE(domain, nullptr);
  Srq srq = bench.make_xrc_srq(domain.get(), bench.cq.get());
  Owned owned;
  ASSERT_EQ(ibv_get_srq_num(srq.get(), &owned.number), 0);
  owned.rkey = bench.mr->rkey;
  owned.buffer = reinterpret_cast<uint64_t>(bench.buffer.data());
  line.tell(owned);
  for (;;) {
    const auto order = line.hear<Order>();
    if (order.what == Order::kEnd || ::testing::Test::HasFailure()) return;
    if (order.what == Order::kPost) {
      ASSERT_EQ(bench.post_receive(srq.get(), order.receive, bench.piece(order.receive * kSlot, kSlot)), 0);
    } else if (order.what == Order::kDestroyQueue) {
      srq.reset();
    } else {
      Received received;
      received.wc = next_completion(bench.cq.get());
      received.sum = sum_of(bench.buffer.data() + received.wc.wr_id * kSlot, received.wc.byte_len);
      line.tell(received);
      continue;
    }
    line.tell(true);
  }
});

// A process with a target in the domain of a file, for a requester of the test.
const HelperBody target_owner("target-owner", [](Line& line) {
  Bench bench;
  const UniqueFd file = open_file(line.hear<FileName>());
  Xrcd domain = bench.make_domain(file.get(), 0);
  ASSERT_NE(domain, nullptr);
  Qp target = bench.make_target(domain.get());
  line.tell(target->qp_num);
  bench.connect(target.get(), line.hear<uint32_t>());
  line.tell(true);
  line.await_end();
});

// A queue in another process.
class Queue {
 public:
  explicit Queue(const FileName& file) : helper_(Helper::start("queue-owner")) {
    helper_.line().tell(file);
    owned_ = helper_.line().hear<Owned>();
  }
  uint32_t number() const { return owned_.number; }
  uint32_t rkey() const { return owned_.rkey; }
  uint64_t open() const { return owned_.buffer + kOpen; }
  void post(uint64_t receive) { order({Order::kPost, receive}); }
  void destroy() { order({Order::kDestroyQueue, 0}); }
  Received next() {
    helper_.line().tell(Order{Order::kComplete, 0});
    return helper_.line().hear<Received>();
  }
  void end() {
    helper_.line().tell(Order{Order::kEnd, 0});
    EXPECT_EQ(helper_.wait(), 0);
  }
  void stop() {
    helper_.kill(SIGSTOP);
    EXPECT_EQ(::waitpid(helper_.pid(), nullptr, WUNTRACED), helper_.pid());
  }
  void kill(int signal) { helper_.kill(signal); }
  void reap() { helper_.wait(); }

 private:
  void order(const Order& what) {
    helper_.line().tell(what);
    EXPECT_TRUE(helper_.line().hear<bool>());
  }
  Helper helper_;
  Owned owned_;
};

class XrcProcesses : public ::testing::Test {
 protected:
  XrcProcesses() {
    std::strcpy(file.text, "/tmp/verbena-xrc-XXXXXX");
    fd = UniqueFd(::mkstemp(file.text));
    EXPECT_TRUE(fd);
    domain = bench.make_domain(fd.get());
    fill_random(bench.buffer, 3);
    connection = connect();
  }
  ~XrcProcesses() override { ::unlink(file.text); }

  // A requester and a target in the test's own process, connected to each other.
  struct Connection {
    Qp target;
    Qp requester;
  };
  Connection connect() {
    Connection made{bench.make_target(domain.get()), bench.make_qp(IBV_QPT_XRC_SEND)};
    bench.connect_both(made.target.get(), made.requester.get());
    return made;
  }
  ibv_send_wr request(ibv_wr_opcode opcode, const Queue& queue) {
    ibv_send_wr wr = send_to(1, queue.number());
    wr.opcode = opcode;
    wr.imm_data = 0x1234;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic = {.remote_addr = queue.open(), .compare_add = 5, .swap = 0, .rkey = queue.rkey()};
    } else {
      wr.wr.rdma = {.remote_addr = queue.open(), .rkey = queue.rkey()};
    }
    return wr;
  }
  ibv_wc_status execute(const ibv_send_wr& wr, ibv_sge piece) {
    EXPECT_EQ(bench.post(connection.requester.get(), wr, piece), 0);
    return next_completion(bench.cq.get()).status;
  }
  // Returns the PSN that the target expects next.
  uint32_t next_psn() {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(connection.target.get(), &attr, IBV_QP_RQ_PSN, &init), 0);
    return attr.rq_psn;
  }
  uint64_t sum(size_t offset, size_t bytes) { return sum_of(bench.buffer.data() + offset, bytes); }

  Bench bench;
  FileName file;
  UniqueFd fd;
  Xrcd domain;
  Connection connection;
};

TEST_F(XrcProcesses, AMessageReachesTheQueueOfAnotherProcess) {
  Queue queue(file);
  size_t offset = 0;
  for (const size_t bytes : {size_t{64}, kSlot, size_t{1}, size_t{3000}}) {
    SCOPED_TRACE(bytes);
    queue.post(1);
    EXPECT_EQ(execute(request(IBV_WR_SEND_WITH_IMM, queue), bench.piece(offset, bytes)), IBV_WC_SUCCESS);
    const Received received = queue.next();
    EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wc.byte_len, bytes);
    EXPECT_EQ(received.wc.imm_data, 0x1234u);
    EXPECT_EQ(received.wc.qp_num, connection.target->qp_num);
    EXPECT_EQ(received.wc.src_qp, connection.requester->qp_num);
    EXPECT_EQ(received.sum, sum(offset, bytes));
    offset += 100;
  }
  queue.end();
}

TEST_F(XrcProcesses, ItsMemoryIsWrittenReadAndCountedIn) {
  Queue queue(file);
  queue.post(1);
  EXPECT_EQ(execute(request(IBV_WR_RDMA_WRITE, queue), bench.piece(0, 5000)), IBV_WC_SUCCESS);
  EXPECT_EQ(execute(request(IBV_WR_RDMA_WRITE_WITH_IMM, queue), bench.piece(0, 5000)), IBV_WC_SUCCESS);
  const Received received = queue.next();
  EXPECT_EQ(received.wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wc.byte_len, 5000u);
  EXPECT_EQ(execute(request(IBV_WR_RDMA_READ, queue), bench.piece(32768, 5000)), IBV_WC_SUCCESS);
  EXPECT_EQ(sum(32768, 5000), sum(0, 5000));
  for (uint64_t turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(execute(request(IBV_WR_ATOMIC_FETCH_AND_ADD, queue), bench.piece(40960, 8)), IBV_WC_SUCCESS);
    uint64_t first;
    uint64_t original;
    std::memcpy(&first, bench.buffer.data(), 8);
    std::memcpy(&original, bench.buffer.data() + 40960, 8);
    EXPECT_EQ(original, first + 5 * turn);
  }
  queue.end();
}

TEST_F(XrcProcesses, KeysAreCheckedByTheQueuesOwner) {
  Queue queue(file);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, queue);
  wr.wr.rdma.rkey ^= 1;
  EXPECT_EQ(execute(wr, bench.piece(0, 64)), IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, connection.target.get());
  ibv_ack_async_event(&event);
  queue.end();
}

TEST_F(XrcProcesses, OneConnectionServesManyProcessesInOrder) {
  constexpr uint64_t kRounds = 40;
  Queue one(file);
  Queue two(file);
  Cq own_cq(ibv_create_cq(bench.context.get(), 64, nullptr, nullptr, 0));
  Srq own = bench.make_xrc_srq(domain.get(), own_cq.get());
  uint32_t own_number = 0;
  ASSERT_EQ(ibv_get_srq_num(own.get(), &own_number), 0);
  for (uint64_t round = 0; round < kRounds; ++round) {
    one.post(round % 8);
    two.post(round % 8);
    ASSERT_EQ(bench.post_receive(own.get(), round, bench.piece(0, 64)), 0);
    // All three at once: messages for different queues directly follow each other.
    uint64_t wr_id = 0;
    for (const uint32_t number : {one.number(), own_number, two.number()}) {
      ASSERT_EQ(bench.post(connection.requester.get(), send_to(wr_id++, number), bench.piece(round * 64, 64)),
                0);
    }
    for (uint64_t i = 0; i < 3; ++i) {
      const ibv_wc wc = next_completion(bench.cq.get());
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(next_completion(own_cq.get()).wr_id, round);
    for (Queue* queue : {&one, &two}) {
      const Received received = queue->next();
      EXPECT_EQ(received.wc.wr_id, round % 8);
      EXPECT_EQ(received.sum, sum(round * 64, 64));
    }
  }
  one.end();
  two.end();
}

TEST_F(XrcProcesses, TheRequesterWaitsForAReceive) {
  Queue queue(file);
  ASSERT_EQ(bench.post(connection.requester.get(), request(IBV_WR_SEND, queue), bench.piece(0, 64)), 0);
  const auto until = MonotonicClock::now() + std::chrono::milliseconds(50);
  ibv_wc wc;
  while (MonotonicClock::now() < until) ASSERT_EQ(ibv_poll_cq(bench.cq.get(), 1, &wc), 0);
  queue.post(3);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(queue.next().wc.wr_id, 3u);
  queue.end();
}

// ---- queues and processes that end

TEST_F(XrcProcesses, AQueueThatIsDestroyedIsNone) {
  Queue queue(file);
  queue.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, queue), bench.piece(0, 64)), IBV_WC_SUCCESS);
  queue.destroy();
  EXPECT_EQ(execute(request(IBV_WR_SEND, queue), bench.piece(0, 64)), IBV_WC_REM_INV_REQ_ERR);
  queue.end();
}

TEST_F(XrcProcesses, AProcessThatDiesAnswersForWhatItOwes) {
  Queue queue(file);
  Queue other(file);
  queue.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, queue), bench.piece(0, 64)), IBV_WC_SUCCESS);
  queue.stop();
  const uint32_t before = next_psn();
  ASSERT_EQ(bench.post(connection.requester.get(), request(IBV_WR_SEND, queue), bench.piece(0, 64)), 0);
  ASSERT_TRUE(eventually([&] {
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(bench.cq.get(), 1, &wc), 0);
    return next_psn() != before;  // it has been forwarded
  }));
  queue.kill(SIGKILL);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_REM_OP_ERR);
  queue.reap();
  // On the next connection this queue is gone, and others work.
  connection = connect();
  other.post(2);
  EXPECT_EQ(execute(request(IBV_WR_SEND, other), bench.piece(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(execute(request(IBV_WR_SEND, queue), bench.piece(0, 64)), IBV_WC_REM_INV_REQ_ERR);
  other.end();
}

TEST_F(XrcProcesses, AQueueOutlivesATargetThatDies) {
  Cq completions(ibv_create_cq(bench.context.get(), 64, nullptr, nullptr, 0));
  Srq srq = bench.make_xrc_srq(domain.get(), completions.get());
  uint32_t number = 0;
  ASSERT_EQ(ibv_get_srq_num(srq.get(), &number), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    Helper helper = Helper::start("target-owner");
    helper.line().tell(file);
    const auto target = helper.line().hear<uint32_t>();
    Qp requester = bench.make_qp(IBV_QPT_XRC_SEND);
    bench.connect(requester.get(), target);
    helper.line().tell(requester->qp_num);
    helper.line().hear<bool>();
    ASSERT_EQ(bench.post_receive(srq.get(), i, bench.piece(i * 64, 64)), 0);
    ASSERT_EQ(bench.post(requester.get(), send_to(i, number), bench.piece(8192, 64)), 0);
    EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
    const ibv_wc wc = next_completion(completions.get());
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.qp_num, target);
    helper.kill(SIGKILL);
    helper.wait();
  }
}

TEST_F(XrcProcesses, AMessageForAQueueOfAnotherDomainFails) {
  FileName elsewhere;
  std::strcpy(elsewhere.text, "/tmp/verbena-xrc-XXXXXX");
  const UniqueFd other(::mkstemp(elsewhere.text));
  Queue queue(elsewhere);
  queue.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, queue), bench.piece(0, 64)), IBV_WC_REM_INV_REQ_ERR);
  queue.end();
  ::unlink(elsewhere.text);
}

// ---- opening and sharing a domain

TEST_F(XrcProcesses, ADomainIsEverybodysUntilTheLastHasClosedIt) {
  connection = {};
  domain.reset();
  errno = 0;
  EXPECT_EQ(bench.make_domain(fd.get(), 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  Queue queue(file);
  EXPECT_NE(bench.make_domain(fd.get(), 0), nullptr);
  errno = 0;
  EXPECT_EQ(bench.make_domain(fd.get(), O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  queue.end();
  EXPECT_TRUE(eventually([&] { return bench.make_domain(fd.get(), O_CREAT | O_EXCL) != nullptr; }));
}

TEST_F(XrcProcesses, ADescriptorThatGivesNoRightToTheFileOpensNoDomain) {
  const UniqueFd name_only(::open(file.text, O_PATH | O_CLOEXEC));
  Queue queue(file);
  connection = {};
  domain.reset();
  errno = 0;
  EXPECT_EQ(bench.make_domain(name_only.get(), 0), nullptr);
  EXPECT_EQ(errno, EBADF);
  queue.end();
}

// ---- a restart of the agent

TEST_F(XrcProcesses, ADomainOutlivesTheAgent) {
  Queue before(file);
  before.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, before), bench.piece(0, 64)), IBV_WC_SUCCESS);
  Queue unknown(file);  // a queue that no message was sent to yet
  Environment::kill_agent(SIGKILL);
  before.post(2);
  EXPECT_EQ(execute(request(IBV_WR_SEND, before), bench.piece(0, 64)), IBV_WC_SUCCESS) << "without an agent";
  Environment::start_agent();
  Queue after(file);
  after.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, after), bench.piece(0, 64)), IBV_WC_SUCCESS);
  unknown.post(1);
  EXPECT_EQ(execute(request(IBV_WR_SEND, unknown), bench.piece(0, 64)), IBV_WC_SUCCESS);
  for (Queue* queue : {&before, &unknown, &after}) queue->end();
}

}  // namespace
}  // namespace verbena::adapter::testing
