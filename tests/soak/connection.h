// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "soak/pattern.h"
#include "soak/plan.h"

namespace verbena::soak {

// What all connections of a process have in common.
struct Common {
  uint32_t process = 0;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::vector<std::byte> srq_memory;
  ibv_mr* srq_region = nullptr;
  alignas(8) uint64_t tally = 0;  // which others add to
  ibv_mr* tally_region = nullptr;
};

struct Counts {
  uint64_t sends = 0;
  uint64_t receives = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t atomics = 0;
  uint64_t bytes_verified = 0;
};

// Something is not as it must be: prints it and ends the process.
[[noreturn]] void fault(const std::string& what);

// One end of an RC connection. It sends messages that the other expects, writes into cells of the other's
// window and reads them back, adds to the other's counters; and it verifies every byte, every completion and
// the order of both. For one thread.
class Connection {
 public:
  // `large`: its cells are. `shares_receives`: it takes its receive buffers from the process's SRQ.
  Connection(Common& common, rdma_cm_id* id, bool large, bool shares_receives, uint64_t seed);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Makes the QP, the memory and the receives. False: it cannot be, errno says why.
  bool prepare();
  Greeting greeting() const;
  void greeted(const Greeting& theirs);
  void establish() { established_ = true; }

  // Posts some requests, if there is room.
  void go_on(Counts& counts);
  // Nothing more is to come: what is under way is to be heard of.
  void wind_up(Counts& counts);
  // A completion of its QP. False: it says that the connection is lost.
  bool complete(const ibv_wc& completion, Counts& counts);
  // The connection is lost. All that is under way is still to be completed, with an error.
  void lose();

  bool is_established() const { return established_ && !lost_; }
  bool is_lost() const { return lost_; }
  bool is_quiet() const { return finished_ == posted_; }
  // Nothing is under way, and no receive is posted.
  bool is_drained() const { return is_quiet() && (shares_receives_ || receives_ == 0); }
  uint32_t qpn() const { return id_->qp->qp_num; }
  rdma_cm_id* id() const { return id_; }
  uint32_t peer() const { return theirs_.process; }
  std::string describe() const;

 private:
  enum class Kind : uint8_t { kMessage, kWrite, kRead, kOwnCounter, kTally };
  struct Work {
    Kind kind;
    bool signaled;
    uint32_t bytes;
    uint64_t expected;  // of an atomic
  };
  // A request while it is put together.
  struct Request {
    ibv_send_wr wr{};
    std::array<ibv_sge, 3> pieces{};
  };

  std::byte* slot(uint64_t number) { return slots_.data() + number % kDepth * cell_bytes_; }
  std::byte* snapshot(uint64_t number) { return snapshots_.data() + number % kDepth * cell_bytes_; }
  std::byte* shadow(uint32_t cell) { return shadow_.data() + size_t{cell} * cell_bytes_; }
  void post_request(Counts& counts, bool signaled);
  void plan_message(Request& request, Work& work);
  void plan_write(Request& request, Work& work);
  void plan_read(Request& request, Work& work);
  void plan_own_counter(Request& request, Work& work);
  void plan_tally(Request& request, Work& work);
  void set_local(Request& request, uint32_t bytes);
  void aim_at(Request& request, uint32_t cell, uint32_t offset);
  void finish(const ibv_wc& completion, Counts& counts);
  void verify(const Work& work, uint64_t number, Counts& counts);
  void receive(const ibv_wc& completion, Counts& counts);
  void verify_message(const ibv_wc& completion, uint32_t buffer, Counts& counts);
  void post_receive(uint32_t buffer);
  uint64_t answer(uint64_t number) const;

  Common& common_;
  rdma_cm_id* id_;
  const uint32_t cell_bytes_;
  const bool shares_receives_;
  const uint64_t seed_;
  Sequence draw_;
  Greeting theirs_{};
  bool established_ = false;
  bool lost_ = false;

  std::vector<std::byte> window_;     // the other's to write
  std::vector<std::byte> slots_;      // what requests send from and read into
  std::vector<std::byte> snapshots_;  // what READs must find
  std::vector<std::byte> shadow_;     // what the other's window must have
  std::vector<std::byte> buffers_;    // for receives
  ibv_mr* window_region_ = nullptr;
  ibv_mr* slots_region_ = nullptr;
  ibv_mr* buffers_region_ = nullptr;

  std::array<Work, kDepth> works_{};
  uint64_t posted_ = 0;
  uint64_t finished_ = 0;
  uint64_t next_message_ = 0;
  uint64_t expected_message_ = 0;
  uint64_t own_counter_ = 0;  // as the other has it, when all is done that has been posted
  uint64_t least_tally_ = 0;
  uint32_t receives_ = 0;  // posted
};

}  // namespace verbena::soak
