// SPDX-License-Identifier: Apache-2.0
// Many processes on one host, each pair connected by several QPs. Everything arrives on every QP. The memory
// and descriptors for a pair of processes do not depend on the number of QPs. Many idle QPs take no processor
// time.
//
// VERBENA_CROWD=64 sets the number of processes (default 12).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/route.h"
#include "adapter/objects/support/services.h"
#include "adapter/shm/channel_memory.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kQpsPerPair = 16;
constexpr uint32_t kMaxProcesses = 64;
constexpr uint32_t kBytes = 64;  // size of a message
constexpr size_t kMaxSharedPerPair = 256 * 1024;

// Returns the message from process `from` to process `to` on their QP `index`.
struct Message {
  std::byte bytes[kBytes];
};
Message message(uint32_t from, uint32_t to, uint32_t index, uint32_t round) {
  Message made;
  fill_random(made.bytes, (uint64_t{from} << 40) | (uint64_t{to} << 24) | (index << 8) | round);
  return made;
}

// The addresses that a process tells the others.
struct Place {
  uint64_t buffer = 0;
  uint32_t rkey = 0;
  uint32_t qpns[kMaxProcesses * kQpsPerPair] = {};
};
struct Start {
  uint32_t self = 0;
  uint32_t processes = 0;
};
struct Cost {
  Holdings before;
  Holdings after;
  size_t shared_bytes = 0;   // of channels, as far as they have been used
  size_t private_bytes = 0;  // since before the QPs were made
  bool correct = false;
};

// Returns the sum of a field of smaps in kilobytes, over the mappings whose line contains `word`.
size_t sum_of_mappings(const std::string& field, const std::string& word) {
  std::ifstream lines("/proc/self/smaps");
  size_t sum = 0;
  bool counts = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_header = line.find('-') < line.find(' ') && line.find(':') > line.find(' ');
    if (is_header) counts = line.find(word) != std::string::npos;
    if (counts && line.starts_with(field + ":"))
      sum += std::strtoul(line.c_str() + field.size() + 1, nullptr, 10);
  }
  return sum;
}

// One of the processes. Its buffer has four rows: messages to send, messages received, messages written by
// others, and messages read. Each row has a place for every QP.
class Member {
 public:
  explicit Member(Line& line) : line_(line), start_(line.hear<Start>()) {
    before_ = own_holdings();
    private_before_ = private_bytes();
    const uint32_t qps = start_.processes * kQpsPerPair;
    buffer_.resize(size_t{4} * qps);
    cq_.reset(ibv_create_cq(bench_.context.get(), static_cast<int>(4 * qps), nullptr, nullptr, 0));
    mr_.reset(ibv_reg_mr(bench_.pd.get(), buffer_.data(), buffer_.size() * sizeof(Message),
                         static_cast<int>(kAllAccess)));
    EXPECT_NE(mr_, nullptr);
    auto place = std::make_unique<Place>();
    place->buffer = reinterpret_cast<uintptr_t>(buffer_.data());
    place->rkey = mr_->rkey;
    qps_.resize(qps);
    for_each([&](uint32_t, uint32_t, uint32_t number) {
      ibv_qp_init_attr init{};
      init.qp_type = IBV_QPT_RC;
      init.send_cq = init.recv_cq = cq_.get();
      init.cap = {
          .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      init.sq_sig_all = 1;
      qps_[number].reset(ibv_create_qp(bench_.pd.get(), &init));
      ASSERT_NE(qps_[number], nullptr) << std::strerror(errno);
      place->qpns[number] = qps_[number]->qp_num;
    });
    line_.tell(*place);
  }

  void join() {
    std::vector<Place> all(start_.processes);
    for (Place& one : all) one = line_.hear<Place>();
    places_ = std::move(all);
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      bench_.connect(qps_[number].get(), places_[peer].qpns[start_.self * kQpsPerPair + index]);
      ibv_sge piece = sge(kReceived, number);
      ibv_recv_wr request{};
      request.wr_id = number;
      request.sg_list = &piece;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(qps_[number].get(), &request, &bad), 0);
    });
    barrier();
  }

  void send() {
    put_messages(1);
    post(IBV_WR_SEND, kSent);
    await(2);
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      expect(kReceived, number, message(peer, start_.self, index, 1));
    });
    barrier();
  }
  void write() {
    put_messages(2);
    post(IBV_WR_RDMA_WRITE, kSent);
    await(1);
    barrier();
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      expect(kWritten, number, message(peer, start_.self, index, 2));
    });
    barrier();
  }
  void read() {
    put_messages(3);
    barrier();
    post(IBV_WR_RDMA_READ, kRead);
    await(1);
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      expect(kRead, number, message(peer, start_.self, index, 3));
    });
    barrier();
  }
  void tell_cost() {
    Cost cost;
    cost.before = before_;
    cost.after = own_holdings();
    cost.shared_bytes = sum_of_mappings("Rss", "memfd:verbena-channel") << 10;
    cost.private_bytes = private_bytes() - private_before_;
    cost.correct = !::testing::Test::HasFailure();
    line_.tell(cost);
  }

 private:
  enum Row : uint8_t { kSent, kReceived, kWritten, kRead };

  static size_t private_bytes() { return sum_of_mappings("Private_Dirty", "") << 10; }
  // Calls `visit` for every QP, with the process at its other end, its index there, and its number here.
  template <class Visit>
  void for_each(Visit visit) {
    for (uint32_t peer = 0; peer < start_.processes; ++peer) {
      if (peer == start_.self) continue;
      for (uint32_t index = 0; index < kQpsPerPair; ++index) visit(peer, index, peer * kQpsPerPair + index);
    }
  }
  uint32_t row(Row row) const { return row * start_.processes * kQpsPerPair; }
  ibv_sge sge(Row of, uint32_t number) const {
    return {reinterpret_cast<uintptr_t>(&buffer_[row(of) + number]), sizeof(Message), mr_->lkey};
  }
  void put_messages(uint32_t round) {
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      buffer_[row(kSent) + number] = message(start_.self, peer, index, round);
    });
  }
  void expect(Row of, uint32_t number, const Message& wanted) {
    const Message& found = buffer_[row(of) + number];
    EXPECT_EQ(std::memcmp(&found, &wanted, sizeof wanted), 0) << "QP " << number << " of " << start_.self;
  }
  // WRITEs go to our place at the peer; READs fetch the peer's message for us.
  void post(ibv_wr_opcode opcode, Row local) {
    for_each([&](uint32_t peer, uint32_t index, uint32_t number) {
      const uint32_t there = start_.self * kQpsPerPair + index;
      ibv_send_wr request = send_request(number);
      request.opcode = opcode;
      request.wr.rdma.rkey = places_[peer].rkey;
      request.wr.rdma.remote_addr =
          places_[peer].buffer +
          (row(opcode == IBV_WR_RDMA_READ ? kSent : kWritten) + there) * sizeof(Message);
      ASSERT_EQ(bench_.post(qps_[number].get(), request, sge(local, number)), 0);
    });
  }
  void await(uint32_t completions) {
    const uint32_t wanted = completions * (start_.processes - 1) * kQpsPerPair;
    const TimePoint deadline = MonotonicClock::now() + std::chrono::seconds(100);
    for (uint32_t found = 0; found < wanted;) {
      ibv_wc all[16];
      const int count = ibv_poll_cq(cq_.get(), 16, all);
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(all[i].status, IBV_WC_SUCCESS) << ibv_wc_status_str(all[i].status);
      }
      found += static_cast<uint32_t>(std::max(count, 0));
      if (count == 0) std::this_thread::yield();
      ASSERT_LT(MonotonicClock::now(), deadline) << found << " completions of " << wanted;
    }
  }
  void barrier() {
    meet_engine();
    line_.tell(true);
    line_.hear<bool>();
    meet_engine();
  }
  // Barriers order the engine's accesses over the wire with ours, but ThreadSanitizer does not see that. It
  // sees a call that takes the lock of the QP's shard.
  void meet_engine() {
    for_each([&](uint32_t, uint32_t, uint32_t number) {
      ibv_qp_attr attr;
      ibv_qp_init_attr init_attr;
      ASSERT_EQ(ibv_query_qp(qps_[number].get(), &attr, IBV_QP_STATE, &init_attr), 0);
    });
  }

  Line& line_;
  const Start start_;
  Bench bench_;
  Holdings before_;
  size_t private_before_ = 0;
  std::vector<Message> buffer_;
  Cq cq_;
  Mr mr_;
  std::vector<Qp> qps_;
  std::vector<Place> places_;
};

const HelperBody crowd_member("crowd-member", [](Line& line) {
  Member member(line);
  member.join();
  member.send();
  member.write();
  member.read();
  member.tell_cost();
  line.await_end();
});

uint32_t crowd_size() {
  const char* said = std::getenv("VERBENA_CROWD");  // NOLINT(concurrency-mt-unsafe): one thread
  return said == nullptr ? 12 : std::clamp(static_cast<uint32_t>(std::atoi(said)), 2u, kMaxProcesses);
}

TEST(Crowd, EachReachesEachOtherByEveryQp) {
  const uint32_t processes = crowd_size();
  const size_t qps = size_t{processes - 1} * kQpsPerPair;
  std::vector<std::unique_ptr<Helper>> members;
  for (uint32_t self = 0; self < processes; ++self) {
    members.push_back(std::unique_ptr<Helper>(new Helper(Helper::start("crowd-member"))));
    members.back()->line().tell(Start{self, processes});
  }
  std::vector<Place> places(processes);
  for (uint32_t self = 0; self < processes; ++self) places[self] = members[self]->line().hear<Place>();
  // Each process reads its places while the others read theirs.
  for (const auto& member : members) {
    for (const Place& place : places) member->line().tell(place);
  }
  // Connect, send, write, check, write and read: each step begins when all processes have finished the last.
  for (int barrier = 0; barrier < 6; ++barrier) {
    for (const auto& member : members) ASSERT_TRUE(member->line().hear<bool>()) << "at barrier " << barrier;
    if (barrier == 0) {
      // With many processes at once, not every first request for a channel is answered. A QP that uses the
      // wire meanwhile gives up after half a second, which is short for this many processes on few
      // processors.
      for (const auto& member : members) ASSERT_TRUE(all_take(usual_route(), member->pid(), qps));
    }
    for (const auto& member : members) member->line().tell(true);
  }
  size_t max_shared = 0;
  size_t max_private = 0;
  size_t max_descriptors = 0;
  for (const auto& member : members) {
    const Cost cost = member->line().hear<Cost>();
    EXPECT_TRUE(cost.correct) << "what arrived was not what was sent: see above";
    if (usual_route() == Route::kLocal) {
      EXPECT_EQ(cost.after.channels, processes - 1) << "one for each other process";
      EXPECT_LE(cost.shared_bytes / (processes - 1), kMaxSharedPerPair);
    } else {
      EXPECT_EQ(cost.after.channels, 0u);
    }
    max_shared = std::max(max_shared, cost.shared_bytes / (processes - 1));
    max_private = std::max(max_private, cost.private_bytes);
    max_descriptors = std::max(max_descriptors, cost.after.descriptors - cost.before.descriptors);
  }
  std::printf(
      "%u processes, each connected to each other by %u QPs (%s). One process: shared %zu KiB with each other"
      " process, %zu bytes of its own for each QP, %.1f descriptors for each other process\n",
      processes, kQpsPerPair, name_of(usual_route()), max_shared >> 10, max_private / qps,
      static_cast<double>(max_descriptors) / (processes - 1));
}

}  // namespace
}  // namespace verbena::adapter::testing
