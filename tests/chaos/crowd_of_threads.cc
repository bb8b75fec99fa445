// SPDX-License-Identifier: Apache-2.0
// Hundreds of threads call every verb on the same objects, without order or coordination. They create,
// change, post, poll, arm, query and destroy. Some destroy objects that others use, as far as a program may:
// an object is destroyed while others use its parents or dependents. Whatever a call returns, the process
// neither crashes nor hangs, and in the end everything can be destroyed.
//
//     crowd_of_threads THREADS SECONDS [SEED] ADDRESS
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPlaces = 24;
constexpr size_t kBytes = 65536;
constexpr uint32_t kDepth = 16;

std::atomic<bool> is_well{true};

void wrong(const char* what) {
  std::printf("WRONG %s: %s\n", what, std::strerror(errno));
  std::fflush(stdout);
  is_well = false;
}

// A QP and the objects that only it uses. A thread that uses them holds the lock shared; one that destroys
// them holds it exclusively: use after destruction is forbidden with any adapter. All other objects are
// shared without a lock.
struct Place {
  std::shared_mutex mutex;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_cq* own_cq = nullptr;
};

struct Shared {
  ibv_context* context = nullptr;
  int gid_index = 0;
  ibv_gid gid{};
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  std::array<ibv_cq*, 4> cqs{};
  ibv_srq* srq = nullptr;
  std::vector<char> memory = std::vector<char>(kBytes);
  ibv_mr* mr = nullptr;
  std::array<Place, kPlaces> places;
  std::atomic<uint64_t> completions{0};
  std::atomic<uint64_t> events{0};
  std::atomic<uint64_t> calls{0};
};

bool open_device(Shared& all, const char* address) {
  int count = 0;
  in_addr wanted{};
  ::inet_pton(AF_INET, address, &wanted);
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count && all.context == nullptr; ++i) {
    ibv_context* const context = ibv_open_device(list[i]);
    if (context == nullptr) continue;
    for (int index = 0; index < 16 && all.context == nullptr; ++index) {
      if (ibv_query_gid(context, 1, index, &all.gid) != 0) break;
      if (std::memcmp(all.gid.raw + 12, &wanted, 4) != 0 || all.gid.raw[11] != 0xff) continue;
      all.context = context;
      all.gid_index = index;
    }
    if (all.context == nullptr) ibv_close_device(context);
  }
  if (list != nullptr) ibv_free_device_list(list);
  return all.context != nullptr;
}

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool make_shared_objects(Shared& all) {
  all.pd = ibv_alloc_pd(all.context);
  all.channel = ibv_create_comp_channel(all.context);
  if (all.pd == nullptr || all.channel == nullptr) return false;
  ::fcntl(all.channel->fd, F_SETFL, O_NONBLOCK);
  ::fcntl(all.context->async_fd, F_SETFL, O_NONBLOCK);
  for (ibv_cq*& cq : all.cqs) {
    cq = ibv_create_cq(all.context, 4096, nullptr, all.channel, 0);
    if (cq == nullptr) return false;
  }
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 256, .max_sge = 1, .srq_limit = 0};
  all.srq = ibv_create_srq(all.pd, &wanted);
  all.mr = ibv_reg_mr(all.pd, all.memory.data(), kBytes, kAccess);
  return all.srq != nullptr && all.mr != nullptr;
}

// ---- the random actions of a thread

class Actor {
 public:
  Actor(Shared& all, uint64_t seed) : all_(all), draw_(seed) {}

  void act() {
    using Action = void (Actor::*)();
    static constexpr Action kActions[] = {&Actor::fill,         &Actor::connect,
                                          &Actor::connect,      &Actor::post_send,
                                          &Actor::post_send,    &Actor::post_send,
                                          &Actor::post_receive, &Actor::post_shared_receive,
                                          &Actor::poll,         &Actor::poll,
                                          &Actor::poll,         &Actor::arm,
                                          &Actor::take_event,   &Actor::take_asynchronous_event,
                                          &Actor::query,        &Actor::empty,
                                          &Actor::break_off,    &Actor::resize,
                                          &Actor::come_and_go,  &Actor::reregister};
    (this->*kActions[below(std::size(kActions))])();
    all_.calls.fetch_add(1, std::memory_order_relaxed);
  }

  // Destroys the place's objects.
  static void give_back(Place& place) {
    if (place.qp != nullptr && ibv_destroy_qp(place.qp) != 0) wrong("ibv_destroy_qp");
    if (place.own_cq != nullptr && ibv_destroy_cq(place.own_cq) != 0) wrong("ibv_destroy_cq");
    if (place.mr != nullptr && ibv_dereg_mr(place.mr) != 0) wrong("ibv_dereg_mr");
    place.qp = nullptr;
    place.own_cq = nullptr;
    place.mr = nullptr;
  }

 private:
  size_t below(size_t limit) { return draw_() % limit; }
  Place& any() { return all_.places[below(kPlaces)]; }
  ibv_cq* any_cq() { return all_.cqs[below(all_.cqs.size())]; }

  void fill() {
    Place& place = any();
    const std::unique_lock lock(place.mutex);
    if (place.qp != nullptr) return;
    place.mr = ibv_reg_mr(all_.pd, all_.memory.data(), kBytes, kAccess);
    place.own_cq = ibv_create_cq(all_.context, 64, nullptr, below(2) == 0 ? all_.channel : nullptr, 0);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = any_cq();
    wanted.recv_cq = below(2) == 0 ? any_cq() : place.own_cq;
    wanted.srq = below(3) == 0 ? all_.srq : nullptr;
    wanted.cap = {.max_send_wr = kDepth,
                  .max_recv_wr = kDepth,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
    wanted.qp_type = below(4) == 0 ? IBV_QPT_UC : IBV_QPT_RC;
    if (place.mr != nullptr && place.own_cq != nullptr) place.qp = ibv_create_qp(all_.pd, &wanted);
    if (place.qp == nullptr) give_back(place);
  }

  void empty() {
    Place& place = any();
    const std::unique_lock lock(place.mutex);
    give_back(place);
  }

  // Connects to the QP of any place: it may be destroyed by now, of another type, or unable to answer.
  void connect() {
    uint32_t other = 0;
    {
      Place& place = any();
      const std::shared_lock lock(place.mutex);
      if (place.qp != nullptr) other = place.qp->qp_num;
    }
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.qp == nullptr) return;
    const bool reliable = place.qp->qp_type == IBV_QPT_RC;
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;
    (void)ibv_modify_qp(place.qp, &to, IBV_QP_STATE);
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = kAccess & ~IBV_ACCESS_LOCAL_WRITE;
    (void)ibv_modify_qp(place.qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = other;
    to.max_dest_rd_atomic = 4;
    to.min_rnr_timer = 1;
    to.ah_attr.is_global = 1;
    to.ah_attr.port_num = 1;
    to.ah_attr.grh.dgid = all_.gid;
    to.ah_attr.grh.sgid_index = static_cast<uint8_t>(all_.gid_index);
    (void)ibv_modify_qp(place.qp, &to,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 8;
    to.retry_cnt = 1;
    to.rnr_retry = 1;
    to.max_rd_atomic = 4;
    (void)ibv_modify_qp(
        place.qp, &to,
        IBV_QP_STATE | IBV_QP_SQ_PSN |
            (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
  }

  void break_off() {
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    ibv_qp_attr to{};
    to.qp_state = below(2) == 0 ? IBV_QPS_ERR : IBV_QPS_RESET;
    if (place.qp != nullptr) (void)ibv_modify_qp(place.qp, &to, IBV_QP_STATE);
  }

  // Keys and memory come from any place, and may be out of date.
  void post_send() {
    static constexpr ibv_wr_opcode kOpcodes[] = {
        IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
    uint32_t rkey = all_.mr->rkey;
    if (below(2) == 0) {
      Place& place = any();
      const std::shared_lock lock(place.mutex);
      if (place.mr != nullptr) rkey = place.mr->rkey;
    }
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.qp == nullptr) return;
    ibv_sge piece{reinterpret_cast<uintptr_t>(all_.memory.data()), 0, all_.mr->lkey};
    ibv_send_wr wr{};
    wr.opcode = kOpcodes[below(std::size(kOpcodes))];
    const bool is_atomic = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    piece.length = is_atomic ? 8 : static_cast<uint32_t>(below(8192));
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.send_flags = below(2) == 0 ? IBV_SEND_SIGNALED : 0;
    if (is_atomic) {
      wr.wr.atomic = {.remote_addr = piece.addr + 8, .compare_add = 1, .swap = 2, .rkey = rkey};
    } else {
      wr.wr.rdma = {.remote_addr = piece.addr + 32768, .rkey = rkey};
    }
    ibv_send_wr* bad = nullptr;
    (void)ibv_post_send(place.qp, &wr, &bad);
  }

  ibv_recv_wr receive_into(ibv_sge& piece) {
    piece = {reinterpret_cast<uintptr_t>(all_.memory.data()) + 16384, 8192, all_.mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    return wr;
  }

  void post_receive() {
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.qp == nullptr || place.qp->srq != nullptr) return;
    ibv_sge piece;
    ibv_recv_wr wr = receive_into(piece);
    ibv_recv_wr* bad = nullptr;
    (void)ibv_post_recv(place.qp, &wr, &bad);
  }

  void post_shared_receive() {
    ibv_sge piece;
    ibv_recv_wr wr = receive_into(piece);
    ibv_recv_wr* bad = nullptr;
    (void)ibv_post_srq_recv(all_.srq, &wr, &bad);
    if (below(8) != 0) return;
    ibv_srq_attr attributes{};
    attributes.srq_limit = static_cast<uint32_t>(below(8));
    (void)ibv_modify_srq(all_.srq, &attributes, IBV_SRQ_LIMIT);
  }

  void poll_one(ibv_cq* cq) {
    ibv_wc found[8];
    const int count = ibv_poll_cq(cq, 8, found);
    if (count < 0 && count != -1) wrong("ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      if (found[i].status > IBV_WC_TM_RNDV_INCOMPLETE) wrong("a completion's status");
    }
    if (count > 0) all_.completions.fetch_add(static_cast<uint64_t>(count), std::memory_order_relaxed);
  }

  void poll() {
    for (int i = 0; i < 4; ++i) poll_one(any_cq());
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.own_cq != nullptr) poll_one(place.own_cq);
  }

  void arm() {
    if (ibv_req_notify_cq(any_cq(), below(2) == 0 ? 1 : 0) != 0) wrong("ibv_req_notify_cq");
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.own_cq != nullptr && ibv_req_notify_cq(place.own_cq, 0) != 0) wrong("ibv_req_notify_cq");
  }

  // An event keeps its CQ alive until it is acknowledged, so another thread may be waiting to destroy this
  // one.
  void take_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(all_.channel, &cq, &context) != 0) {
      if (errno != EAGAIN) wrong("ibv_get_cq_event");
      return;
    }
    all_.events.fetch_add(1, std::memory_order_relaxed);
    if (below(2) == 0) poll_one(cq);
    ibv_ack_cq_events(cq, 1);
  }

  void take_asynchronous_event() {
    ibv_async_event event;
    if (ibv_get_async_event(all_.context, &event) != 0) {
      if (errno != EAGAIN) wrong("ibv_get_async_event");
      return;
    }
    all_.events.fetch_add(1, std::memory_order_relaxed);
    ibv_ack_async_event(&event);
  }

  void query() {
    ibv_port_attr port;
    ibv_device_attr device;
    ibv_srq_attr srq;
    if (ibv_query_port(all_.context, 1, &port) != 0) wrong("ibv_query_port");
    if (ibv_query_device(all_.context, &device) != 0) wrong("ibv_query_device");
    if (ibv_query_srq(all_.srq, &srq) != 0) wrong("ibv_query_srq");
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.qp == nullptr) return;
    ibv_qp_attr attributes;
    ibv_qp_init_attr initial;
    if (ibv_query_qp(place.qp, &attributes, IBV_QP_STATE | IBV_QP_CAP, &initial) != 0) wrong("ibv_query_qp");
  }

  void resize() {
    Place& place = any();
    const std::shared_lock lock(place.mutex);
    if (place.own_cq != nullptr) (void)ibv_resize_cq(place.own_cq, 32 + static_cast<int>(below(256)));
  }

  // Creates and destroys objects of the thread's own, and a context.
  void come_and_go() {
    if (below(8) == 0) {
      int count = 0;
      ibv_device** const list = ibv_get_device_list(&count);
      ibv_context* const context = count > 0 ? ibv_open_device(list[0]) : nullptr;
      if (list != nullptr) ibv_free_device_list(list);
      if (context == nullptr) return wrong("ibv_open_device");
      if (ibv_close_device(context) != 0) wrong("ibv_close_device");
      return;
    }
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = all_.gid;
    path.grh.sgid_index = static_cast<uint8_t>(all_.gid_index);
    ibv_pd* const pd = ibv_alloc_pd(all_.context);
    ibv_ah* const ah = ibv_create_ah(pd, &path);
    ibv_mw* const window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    if (pd == nullptr || ah == nullptr || window == nullptr) return wrong("objects of one's own");
    if (ibv_dealloc_mw(window) != 0 || ibv_destroy_ah(ah) != 0 || ibv_dealloc_pd(pd) != 0)
      wrong("giving back objects of one's own");
  }

  void reregister() {
    Place& place = any();
    const std::unique_lock lock(place.mutex);
    if (place.mr == nullptr) return;
    if (ibv_rereg_mr(place.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess) != 0)
      wrong("ibv_rereg_mr");
  }

  Shared& all_;
  std::mt19937_64 draw_;
};

// A thread that destroys a CQ waits until its events are acknowledged, so they must be read.
void drain_events(Shared& all, const std::atomic<bool>& done) {
  pollfd entry{all.channel->fd, POLLIN, 0};
  while (!done) {
    if (::poll(&entry, 1, 20) != 1) continue;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(all.channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
  }
}

void give_all_back(Shared& all) {
  for (Place& place : all.places) Actor::give_back(place);
  bool good = ibv_destroy_srq(all.srq) == 0;
  for (ibv_cq* cq : all.cqs) good &= ibv_destroy_cq(cq) == 0;
  good &= ibv_destroy_comp_channel(all.channel) == 0;
  good &= ibv_dereg_mr(all.mr) == 0;
  good &= ibv_dealloc_pd(all.pd) == 0;
  good &= ibv_close_device(all.context) == 0;
  if (!good) wrong("giving back");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t count = std::strtoul(argv[1], nullptr, 10);
  const auto end = Clock::now() + std::chrono::seconds(std::atol(argv[2]));
  const uint64_t seed = argc > 4 ? std::strtoull(argv[3], nullptr, 10) : std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Shared all;
  if (!open_device(all, argv[argc - 1]) || !make_shared_objects(all)) {
    wrong("opening");
    return 1;
  }
  std::atomic<bool> done{false};
  std::thread drain([&] { drain_events(all, done); });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Actor actor(all, seed * 1000 + i);
      while (Clock::now() < end && is_well) actor.act();
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  drain.join();
  give_all_back(all);
  std::printf("%zu threads, %llu calls, %llu completions, %llu events\n", count,
              static_cast<unsigned long long>(all.calls.load()),
              static_cast<unsigned long long>(all.completions.load()),
              static_cast<unsigned long long>(all.events.load()));
  std::puts(is_well ? "all is well" : "something is WRONG");
  return is_well ? 0 : 1;
}
