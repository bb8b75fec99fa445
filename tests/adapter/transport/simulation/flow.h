// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/simulation/host.h"
#include "adapter/transport/simulation/layout.h"
#include "adapter/transport/simulation/ring_space.h"
#include "base/random.h"

namespace verbena::transport {

// A deliberate error in one message of a flow.
enum class Fault : uint8_t {
  kNone,
  kRemoteKey,     // a WRITE, READ or atomic with an invalid key
  kRemoteBounds,  // a WRITE, READ or atomic beyond its region
  kLocalKey,      // a SEND, WRITE or READ with a local address that is not registered
  kTooLong,       // a SEND longer than its receive
  kNoReceive,     // a SEND without a receive, with a finite rnr_retry
  kCount,
};

struct FlowOptions {
  uint32_t packets = 1000;  // approximate total
  uint32_t max_message = 4096;
  uint32_t mtu = 1024;
  uint32_t lateness = 0;  // parts per million of requests and receives that are posted late
  bool only_writes = false;
  bool all_signaled = false;
  Fault fault = Fault::kNone;
  uint64_t fault_at = 0;  // the number of the faulty message
};

// The messages from one QP to its peer. Posts them and the receives for them, and checks all results: each
// message arrives once, in order, intact and nowhere else. Completions come in order, only for signaled
// requests, and not before the effect. Atomics are executed exactly once.
//
// With a fault, all this holds up to the faulty message; that message fails as expected, and all later ones
// are flushed.
class Flow {
 public:
  Flow(Host& sender, SimulatedQp& from, Host& receiver, SimulatedQp& to, Buffer& shared_counter,
       const FlowOptions& options, uint64_t seed);

  // Polls, checks and posts, at both ends. True: call it again at once.
  bool progress(TimePoint now);
  // The time at which to call progress() again even if nothing happens.
  TimePoint wake_at() const { return std::min(send_idle_until_, receive_idle_until_); }

  // Whether everything is done and correct, or the fault has had all its effects.
  bool finished() const;
  // The first error found; empty if there is none.
  const std::string& complaint() const { return complaint_; }
  std::string progress_report() const;

  // IBV_WC_SUCCESS, or the status of the first request that failed.
  ibv_wc_status status() const { return status_; }
  bool failed() const { return status_ != IBV_WC_SUCCESS; }
  // The status of the first receive that failed.
  ibv_wc_status receive_status() const { return receive_status_; }
  uint64_t failed_message() const { return failed_message_; }
  uint64_t completed() const { return first_; }
  // Tells that the peer has failed: the flow may end at any request, but must end.
  void expect_end() { end_expected_ = true; }
  uint64_t added_to_shared_counter() const { return added_; }

 private:
  static constexpr auto kFlush = static_cast<ibv_wr_opcode>(queues::kFlushOpcode);

  struct Message {
    uint64_t id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = 0;
    uint32_t immediate = 0;
    Layout layout;               // at the sender
    uint32_t source_offset = 0;  // offset of the data that is sent, or in the library: that is read
    RingSpace::Stretch place;    // WRITE: in the target; READ, atomic: in the landing buffer
    uint64_t receive = 0;        // number of the receive that it uses
    uint64_t original = 0;       // atomics: the expected original value
    bool shared = false;         // atomics: uses the shared counter
    bool posted = false;

    bool takes_receive() const {
      return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
             opcode == IBV_WR_RDMA_WRITE_WITH_IMM || invalidates();
    }
    bool invalidates() const { return opcode == IBV_WR_SEND_WITH_INV; }
    bool is_local() const { return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV; }
    bool is_write() const { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
    bool is_atomic() const {
      return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    }
    bool is_word() const { return opcode == IBV_WR_ATOMIC_WRITE; }
    bool is_flush() const { return opcode == kFlush; }
    bool has_immediate() const {
      return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    }
    uint32_t length() const { return layout.length; }
  };
  struct Receive {
    uint64_t message = 0;
    Layout layout;
    RingSpace::Stretch place;
  };

  uint32_t draw_length();
  ibv_wr_opcode draw_opcode();
  void draw_message();
  bool is_faulty(const Message& m) const {
    return options_.fault != Fault::kNone && m.id == options_.fault_at;
  }
  Message& message(uint64_t id) { return messages_[id - first_]; }

  bool post_sends(TimePoint now);
  bool post_next();
  bool place(Message& m, ibv_send_wr& wr);
  void describe_local(Message& m, ibv_send_wr& wr);
  void open_window();
  void make_faulty(Message& m, ibv_send_wr& wr, ibv_sge* list);
  bool post_receives(TimePoint now);
  bool post_receive_for(Message& m);
  bool poll_sends();
  bool poll_receives();
  void on_sent(const ibv_wc& wc);
  void on_received(const ibv_wc& wc);
  void retire();
  bool is_in_place(const Message& m);
  TimePoint idle(TimePoint now);
  void complain(const std::string& what);

  Host& sender_;
  SimulatedQp& from_;
  Host& receiver_;
  SimulatedQp& to_;
  Buffer& shared_counter_;
  const FlowOptions options_;
  Random random_;  // for contents
  Random mood_;    // for times

  Buffer& source_;
  Buffer& landing_;
  Buffer& library_;
  Buffer& target_;
  Buffer& inbox_;
  Buffer& counter_;
  // A memory window onto the target, bound at the receiver's end. A message invalidates it, and it is bound
  // again after that message has arrived.
  memory::Region& window_;
  bool window_is_open_ = false;
  bool window_may_close_ = false;
  // The sender's own window, which local requests bind and invalidate in turn. A second execution of such a
  // request would fail, so this checks that each is executed once.
  memory::Region& own_window_;
  uint64_t local_requests_ = 0;
  uint8_t own_tag_ = 0;
  ibv_mw mw_{};  // the verbs objects of the application
  ibv_mr mr_{};
  RingSpace landing_space_;
  RingSpace target_space_;
  RingSpace inbox_space_;

  // Messages from first_ (the oldest not known to be complete) to the last one drawn. Those before next_post_
  // are posted; receives are posted for those before next_receive_.
  std::deque<Message> messages_;
  uint64_t first_ = 0;
  uint64_t next_post_ = 0;
  uint64_t next_receive_ = 0;
  uint32_t packets_drawn_ = 0;
  bool all_drawn_ = false;
  uint32_t unsignaled_bytes_ = 0;
  std::deque<Receive> receives_;  // posted and not completed
  uint64_t receives_posted_ = 0;
  uint64_t receives_completed_ = 0;
  uint64_t receives_drawn_ = 0;
  uint64_t counter_value_ = 0;
  uint64_t added_ = 0;

  TimePoint send_idle_until_ = kNever;
  TimePoint receive_idle_until_ = kNever;
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  ibv_wc_status receive_status_ = IBV_WC_SUCCESS;
  uint64_t failed_message_ = UINT64_MAX;
  uint64_t flushed_ = 0;
  bool end_expected_ = false;
  std::string complaint_;
  std::vector<std::byte> scratch_;
};

}  // namespace verbena::transport
