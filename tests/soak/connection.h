// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "soak/loose.h"
#include "soak/pattern.h"
#include "soak/plan.h"

namespace verbena::soak {

// The objects that all connections of a process share.
struct Common {
  uint32_t process = 0;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::vector<std::byte> srq_memory;
  ibv_mr* srq_region = nullptr;
  alignas(8) uint64_t tally = 0;  // counter that peers increment
  ibv_mr* tally_region = nullptr;
  ibv_cq* loose_cq = nullptr;  // for UC and UD
  ibv_qp* ud = nullptr;
};

struct Counts {
  uint64_t sends = 0;
  uint64_t receives = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t atomics = 0;
  uint64_t windows = 0;  // memory windows bound, and later invalidated by the peer
  uint64_t loose = 0;    // UC and UD messages that arrived
  uint64_t bytes_verified = 0;
};

// Prints a violation and ends the process.
[[noreturn]] void fault(const std::string& what);

// One end of an RC connection. It sends messages that the peer expects, writes into cells of the peer's
// window and reads them back, and adds to the peer's counters. It verifies every byte, every completion and
// their order. From time to time it binds a memory window and sends the peer its key; the peer uses this key
// from then on and invalidates the former one. UC and UD messages, which may be lost, are sent besides
// (loose.h). Single-threaded.
class Connection {
 public:
  // `large`: uses large cells. `shares_receives`: receives into the process's SRQ.
  Connection(Common& common, rdma_cm_id* id, bool large, bool shares_receives, uint64_t seed);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Creates the QP, the memory and the receives. False, with errno, on failure.
  bool prepare();
  Greeting greeting() const;
  void greeted(const Greeting& theirs);
  void establish();

  // Posts some requests if there is room.
  void go_on(Counts& counts);
  // Posts no new requests; only waits for outstanding ones.
  void wind_up(Counts& counts);
  // Handles a completion of its QP. False: the connection is lost.
  bool complete(const ibv_wc& completion, Counts& counts);
  // Marks the connection as lost. Outstanding requests will complete with an error.
  void lose();

  bool is_established() const { return established_ && !lost_; }
  bool is_lost() const { return lost_; }
  bool is_quiet() const { return finished_ == posted_; }
  // Whether no request is outstanding and no receive is posted.
  bool is_drained() const { return is_quiet() && (shares_receives_ || receives_ == 0); }
  uint32_t qpn() const { return id_->qp->qp_num; }
  rdma_cm_id* id() const { return id_; }
  // REQUIRES: has_loose().
  Loose& loose() { return *loose_; }
  bool has_loose() const { return loose_ != nullptr; }
  uint32_t peer() const { return theirs_.process; }
  std::string describe() const;

 private:
  enum class Kind : uint8_t { kMessage, kWrite, kRead, kOwnCounter, kTally, kBind };
  struct Work {
    Kind kind;
    bool signaled;
    uint32_t bytes;
    uint64_t expected;  // previous value, for an atomic
  };
  // A request under construction.
  struct Request {
    ibv_send_wr wr{};
    std::array<ibv_sge, 3> pieces{};
  };

  std::byte* slot(uint64_t number) { return slots_.data() + number % kDepth * cell_bytes_; }
  std::byte* snapshot(uint64_t number) { return snapshots_.data() + number % kDepth * cell_bytes_; }
  std::byte* shadow(uint32_t cell) { return shadow_.data() + size_t{cell} * cell_bytes_; }
  void post_request(Counts& counts, bool signaled);
  void bind_window();
  void give_key(Request& request);
  void return_key(Request& request);
  void take_key(uint32_t key);
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
  bool key_has_come_back(const ibv_wc& completion, Counts& counts);
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

  std::vector<std::byte> window_;     // written by the peer
  std::vector<std::byte> slots_;      // buffers of requests
  std::vector<std::byte> snapshots_;  // expected results of READs
  std::vector<std::byte> shadow_;     // expected content of the peer's window
  std::vector<std::byte> buffers_;    // receive buffers
  ibv_mr* window_region_ = nullptr;
  ibv_mr* slots_region_ = nullptr;
  ibv_mr* buffers_region_ = nullptr;

  std::unique_ptr<Loose> loose_;  // set by prepare()

  std::array<ibv_mw*, 2> windows_{};  // one is bound, the other is the next to be bound
  uint64_t bound_ = 0;                // number of bindings
  uint32_t given_key_ = 0;            // key that the peer has or will receive; 0: that of the region
  bool is_key_told_ = true;           // a posted message carries it
  uint32_t awaited_key_ = 0;          // key that the peer must invalidate before the next binding
  uint32_t returned_key_ = 0;         // key of the peer's that this end must invalidate; 0: none
  bool has_window_key_ = false;       // the peer has sent a window key

  std::array<Work, kDepth> works_{};
  uint64_t posted_ = 0;
  uint64_t finished_ = 0;
  uint64_t next_message_ = 0;
  uint64_t expected_message_ = 0;
  uint64_t own_counter_ = 0;  // value at the peer after all posted requests are done
  uint64_t least_tally_ = 0;
  uint32_t receives_ = 0;  // number posted
};

}  // namespace verbena::soak
