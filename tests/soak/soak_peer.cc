// SPDX-License-Identifier: Apache-2.0
// One of many processes that make all kinds of requests to each other, and check that all of them were
// executed correctly.
//
//     soak_peer NUMBER SEED ADDRESS:PORT COUNT [ADDRESS:PORT...]
//
// Listens at the first address, and keeps COUNT connections to each of the others; lost ones are made again.
// On SIGUSR1 it posts nothing more, and reports when everything has completed. On SIGTERM it disconnects,
// releases everything, and ends. Prints a line for each event that the test needs:
//
//     ready | quiet | lost PROCESS STATUS TIME | count NAME VALUE ... |
//     end DESCRIPTORS_BEFORE AFTER | fault WHY
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "soak/connection.h"
#include "soak/plan.h"

namespace verbena::soak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kSharedReceives = 512;
constexpr int kResolveMs = 2000;
constexpr milliseconds kRetryAfter(200);
constexpr uint32_t kMaxPolls = 64;  // in a row

volatile std::sig_atomic_t asked_for_quiet = 0;
volatile std::sig_atomic_t asked_to_end = 0;

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

double seconds(Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

sockaddr_in parse_address(const std::string& text) {
  sockaddr_in address{};
  const size_t colon = text.rfind(':');
  address.sin_family = AF_INET;
  if (colon == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1)
    fault("not ADDRESS:PORT: " + text);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return address;
}

// A connection that this process makes, and makes again when it is lost.
struct Wanted {
  sockaddr_in address;
  uint32_t index;
  Connection* connection = nullptr;
  Clock::time_point not_before{};
};

class Process {
 public:
  Process(uint32_t number, uint64_t seed, const std::string& own, uint32_t count,
          std::vector<std::string> others)
      : draw_(seed) {
    common_.process = number;
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr) fault("no event channel");
    ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    sockaddr_in address = parse_address(own);
    if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) != 0 ||
        rdma_listen(listener_, 256) != 0)
      fault(std::string("cannot listen: ") + std::strerror(errno));
    make_common(listener_->verbs);
    for (const std::string& other : others) {
      for (uint32_t i = 0; i < count; ++i) wanted_.push_back({.address = parse_address(other), .index = i});
    }
    say("ready");
  }

  void run() {
    bool is_said = false;
    while (asked_to_end == 0) {
      const bool some = turn();
      if (asked_for_quiet != 0 && !is_said && all_quiet()) {
        is_said = true;
        say("quiet");
      }
      count_up();
      if (!some) wait();
    }
  }

  // Disconnects all connections and releases everything.
  void end() {
    while (!connections_.empty()) {
      for (const auto& connection : connections_) {
        if (!connection->is_lost()) leave(*connection);
      }
      turn();
    }
    rdma_destroy_id(listener_);
    datagrams_.reset();
    if (ibv_destroy_srq(common_.srq) != 0 || ibv_destroy_cq(common_.loose_cq) != 0 ||
        ibv_dereg_mr(common_.srq_region) != 0 || ibv_dereg_mr(common_.tally_region) != 0 ||
        ibv_destroy_cq(common_.cq) != 0 || ibv_destroy_comp_channel(completions_) != 0 ||
        ibv_dealloc_pd(common_.pd) != 0)
      fault(std::string("something cannot be given back: ") + std::strerror(errno));
    rdma_destroy_event_channel(channel_);
    count();
    std::printf("end %zu %zu\n", open_descriptors(), mappings());
  }

 private:
  static void say(const char* what) {
    std::puts(what);
    std::fflush(stdout);
  }

  void make_common(ibv_context* verbs) {
    if (verbs == nullptr) fault("the address has no device");
    common_.pd = ibv_alloc_pd(verbs);
    completions_ = ibv_create_comp_channel(verbs);
    if (common_.pd == nullptr || completions_ == nullptr) fault("no protection domain");
    ::fcntl(completions_->fd, F_SETFL, O_NONBLOCK);
    common_.cq = ibv_create_cq(verbs, 16384, nullptr, completions_, 0);
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = kSharedReceives;
    wanted.attr.max_sge = 1;
    common_.srq = ibv_create_srq(common_.pd, &wanted);
    common_.srq_memory.resize(size_t{kSharedReceives} * kMaxMessage);
    common_.srq_region =
        ibv_reg_mr(common_.pd, common_.srq_memory.data(), common_.srq_memory.size(), IBV_ACCESS_LOCAL_WRITE);
    common_.tally_region = ibv_reg_mr(common_.pd, &common_.tally, sizeof common_.tally,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (common_.cq == nullptr || common_.srq == nullptr || common_.srq_region == nullptr ||
        common_.tally_region == nullptr)
      fault(std::string("the process's own queues: ") + std::strerror(errno));
    for (uint32_t i = 0; i < kSharedReceives; ++i) post_shared(i);
    common_.loose_cq = ibv_create_cq(verbs, 16384, nullptr, nullptr, 0);
    if (common_.loose_cq != nullptr) datagrams_ = Datagrams::create(common_.pd, common_.loose_cq);
    if (datagrams_ == nullptr) fault("no UD queue pair");
    common_.ud = datagrams_->qp();
  }

  void post_shared(uint32_t buffer) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(common_.srq_memory.data() + size_t{buffer} * kMaxMessage),
                  kMaxMessage, common_.srq_region->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = uint64_t{1} << 63 | buffer;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ibv_recv_wr* refused = nullptr;
    if (ibv_post_srq_recv(common_.srq, &wr, &refused) != 0) fault("the SRQ takes no receive");
  }

  // Polls everything once. Returns whether there was something to do.
  bool turn() {
    bool some = false;
    while (handle_event()) some = true;
    uint32_t polled = 0;
    while (polled < kMaxPolls && poll_completions()) ++polled;
    poll_loose();
    // A QP's receives from the SRQ must have been polled before the QP is destroyed, or the SRQ loses them.
    if (polled < kMaxPolls) bury();
    if (asked_to_end != 0) return true;
    for (const auto& connection : connections_) {
      if (!connection->is_established()) continue;
      if (asked_for_quiet == 0) {
        connection->go_on(counts_);
      } else {
        connection->wind_up(counts_);
      }
    }
    if (asked_for_quiet == 0) connect_wanted();
    return some || polled > 0;
  }

  void wait() {
    if (ibv_req_notify_cq(common_.cq, 0) != 0) fault("the queue cannot be armed");
    if (poll_completions()) return;
    pollfd waited[] = {{channel_->fd, POLLIN, 0}, {completions_->fd, POLLIN, 0}};
    ::poll(waited, 2, 50);
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(completions_, &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  }

  bool all_quiet() const {
    for (const auto& connection : connections_) {
      if (!connection->is_quiet() || connection->is_lost()) return false;
    }
    return true;
  }

  bool poll_completions() {
    ibv_wc completions[32];
    const int found = ibv_poll_cq(common_.cq, 32, completions);
    if (found < 0) fault("the queue cannot be polled");
    for (int i = 0; i < found; ++i) {
      const auto at = by_qpn_.find(completions[i].qp_num);
      if (at == by_qpn_.end()) fault("a completion of a QP that is not there");
      Connection& connection = *at->second;
      if (!connection.complete(completions[i], counts_) && !connection.is_lost())
        lost(connection, completions[i].status);
    }
    return found > 0;
  }

  // A destroyed QP takes its completions with it: a completion of a QP that no longer exists is a fault.
  void poll_loose() {
    ibv_wc completions[32];
    const int found = ibv_poll_cq(common_.loose_cq, 32, completions);
    if (found < 0) fault("the queue of UC and UD cannot be polled");
    for (int i = 0; i < found; ++i) {
      const ibv_wc& completion = completions[i];
      std::string complaint = "a completion of a UC QP that is not there";
      if (completion.qp_num == common_.ud->qp_num) {
        complaint = datagrams_->complete(completion, counts_.loose);
      } else if (const auto at = by_uc_qpn_.find(completion.qp_num); at != by_uc_qpn_.end()) {
        complaint = at->second->loose().complete(completion, counts_.loose);
      }
      if (!complaint.empty()) fault("UC or UD: " + complaint);
    }
  }

  // ---- connections

  void connect_wanted() {
    const Clock::time_point now = Clock::now();
    for (Wanted& wanted : wanted_) {
      if (wanted.connection != nullptr || now < wanted.not_before) continue;
      wanted.not_before = now + kRetryAfter;
      rdma_cm_id* id = nullptr;
      if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) continue;
      Connection& made = add(id, wanted.index);
      wanted.connection = &made;
      if (rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&wanted.address), kResolveMs) != 0)
        give_up(made);
    }
  }

  Connection& add(rdma_cm_id* id, uint32_t index) {
    connections_.push_back(
        std::make_unique<Connection>(common_, id, index % 16 == 0, index % 2 == 1, draw_.next()));
    return *connections_.back();
  }

  static rdma_conn_param parameters(const Greeting& greeting) {
    rdma_conn_param made{};
    made.private_data = &greeting;
    made.private_data_len = sizeof greeting;
    made.responder_resources = made.initiator_depth = 8;
    made.retry_count = made.rnr_retry_count = 7;
    return made;
  }

  bool handle_event() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return false;
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* const id = event->id;
    Greeting theirs{};
    const bool is_greeted = event->param.conn.private_data_len >= sizeof theirs &&
                            event->param.conn.private_data != nullptr &&
                            (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED);
    if (is_greeted) std::memcpy(&theirs, event->param.conn.private_data, sizeof theirs);
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      accept(id, theirs);
    } else if (id != listener_) {
      advance(*static_cast<Connection*>(id->context), type, is_greeted ? &theirs : nullptr);
    }
    return true;
  }

  void register_numbers(Connection& connection) {
    by_qpn_[connection.qpn()] = &connection;
    by_uc_qpn_[connection.loose().uc_qpn()] = &connection;
  }

  // The index follows from the peer's cell size and seed.
  void accept(rdma_cm_id* id, const Greeting& theirs) {
    const uint32_t index = theirs.cell_bytes == kLargeCell ? 0 : 2 + static_cast<uint32_t>(theirs.seed % 2);
    Connection& made = add(id, index);
    if (!made.prepare()) return give_up(made);
    register_numbers(made);
    made.greeted(theirs);
    const Greeting ours = made.greeting();
    rdma_conn_param wanted = parameters(ours);
    if (rdma_accept(id, &wanted) != 0) give_up(made);
  }

  void advance(Connection& connection, rdma_cm_event_type type, const Greeting* theirs) {
    rdma_cm_id* const id = connection.id();
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id, kResolveMs) != 0) give_up(connection);
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        request(connection);
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        if (theirs != nullptr) connection.greeted(*theirs);
        if (connection.peer() == common_.process) fault("connected to itself");
        connection.establish();
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        if (!connection.is_lost()) lost(connection, IBV_WC_SUCCESS);
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        give_up(connection);
    }
  }

  void request(Connection& connection) {
    if (!connection.prepare()) return give_up(connection);
    register_numbers(connection);
    const Greeting ours = connection.greeting();
    rdma_conn_param wanted = parameters(ours);
    if (rdma_connect(connection.id(), &wanted) != 0) give_up(connection);
  }

  // Called for an established connection that is lost.
  void lost(Connection& connection, ibv_wc_status status) {
    if (asked_for_quiet == 0 && asked_to_end == 0 && connection.is_established())
      std::printf("lost %u %d %.3f\n", connection.peer(), status, seconds(Clock::now()));
    leave(connection);
  }

  void leave(Connection& connection) {
    if (connection.id()->qp == nullptr) return give_up(connection);
    rdma_disconnect(connection.id());
    connection.lose();
  }

  // Called for a connection that could not be made.
  void give_up(Connection& connection) {
    if (connection.is_lost()) return;
    if (connection.id()->qp != nullptr) {
      connection.lose();
    } else {
      hopeless_.push_back(&connection);
    }
  }

  // Destroys connections that could not be made, and lost ones without outstanding requests.
  void bury() {
    std::erase_if(connections_, [this](const std::unique_ptr<Connection>& connection) {
      const bool is_hopeless =
          std::find(hopeless_.begin(), hopeless_.end(), connection.get()) != hopeless_.end();
      if (!is_hopeless && !(connection->is_lost() && connection->is_drained())) return false;
      if (connection->id()->qp != nullptr) by_qpn_.erase(connection->qpn());
      if (connection->has_loose()) by_uc_qpn_.erase(connection->loose().uc_qpn());
      for (Wanted& wanted : wanted_) {
        if (wanted.connection == connection.get()) wanted.connection = nullptr;
      }
      return true;
    });
    hopeless_.clear();
  }

  // ---- counts

  void count_up() {
    const Clock::time_point now = Clock::now();
    if (now < next_count_) return;
    next_count_ = now + std::chrono::seconds(1);
    count();
  }

  void count() {
    size_t established = 0;
    for (const auto& connection : connections_) established += connection->is_established() ? 1 : 0;
    std::printf(
        "count established %zu sends %lu receives %lu writes %lu reads %lu atomics %lu windows %lu loose %lu "
        "bytes %lu\n",
        established, counts_.sends, counts_.receives, counts_.writes, counts_.reads, counts_.atomics,
        counts_.windows, counts_.loose, counts_.bytes_verified);
    std::fflush(stdout);
  }

  Sequence draw_;
  Common common_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  std::list<std::unique_ptr<Connection>> connections_;
  std::unordered_map<uint32_t, Connection*> by_qpn_;
  std::unordered_map<uint32_t, Connection*> by_uc_qpn_;
  std::unique_ptr<Datagrams> datagrams_;
  std::vector<Wanted> wanted_;
  std::vector<Connection*> hopeless_;
  Counts counts_;
  Clock::time_point next_count_{};
};

}  // namespace
}  // namespace verbena::soak

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: soak_peer NUMBER SEED ADDRESS:PORT COUNT [ADDRESS:PORT...]\n");
    return 2;
  }
  std::signal(SIGUSR1, [](int) { verbena::soak::asked_for_quiet = 1; });
  std::signal(SIGTERM, [](int) { verbena::soak::asked_to_end = 1; });
  verbena::soak::Process process(static_cast<uint32_t>(std::atoi(argv[1])),
                                 std::strtoull(argv[2], nullptr, 10), argv[3],
                                 static_cast<uint32_t>(std::atoi(argv[4])), {argv + 5, argv + argc});
  process.run();
  process.end();
  return 0;
}
