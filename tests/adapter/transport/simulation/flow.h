// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "adapter/queues/flush_request.h"
#include "adapter/transport/simulation/host.h"
#include "adapter/transport/simulation/layout.h"
#include "adapter/transport/simulation/ring_space.h"
#include "base/random.h"

namespace verbena::transport {

// What goes wrong with one message of a flow, on purpose.
enum class Fault : uint8_t {
  kNone,
  kRemoteKey,     // a WRITE, READ or atomic with a key that does not exist
  kRemoteBounds,  // one that leaves its region
  kLocalKey,      // a SEND, WRITE or READ from or to memory that is not registered
  kTooLong,       // a SEND longer than what receives it
  kNoReceive,     // a SEND that nothing is ever posted for, with a finite rnr_retry
  kCount,
};

struct FlowOptions {
  uint32_t packets = 1000;  // about as many in all
  uint32_t max_message = 4096;
  uint32_t mtu = 1024;
  uint32_t lateness = 0;  // parts per million: receives, requests are posted late
  bool only_writes = false;
  bool all_signaled = false;
  Fault fault = Fault::kNone;
  uint64_t fault_at = 0;  // the message that it befalls
};

// The messages from one QP to its peer: posts them, posts the receives for them, and checks everything that
// comes of it: each message once, in order, whole and nowhere else; completions in order, for exactly what
// was signaled, and not before the fact; atomics executed exactly once.
//
// With a fault, everything up to the faulty message must be so, that message must fail as it should, and all
// after it be flushed.
class Flow {
 public:
  Flow(Host& sender, SimulatedQp& from, Host& receiver, SimulatedQp& to, Buffer& shared_counter,
       const FlowOptions& options, uint64_t seed);

  // Polls, checks and posts, at both ends. True: there is more to do at once.
  bool progress(TimePoint now);
  // When it wants to be called again though nothing happens.
  TimePoint wake_at() const { return std::min(send_idle_until_, receive_idle_until_); }

  // Everything is done and has been found right, or the fault has had its effects.
  bool finished() const;
  // What was found wrong first; empty while nothing is.
  const std::string& complaint() const { return complaint_; }
  std::string progress_report() const;

  // How it ended: IBV_WC_SUCCESS, or what the first request that failed failed with.
  ibv_wc_status status() const { return status_; }
  bool failed() const { return status_ != IBV_WC_SUCCESS; }
  // Of the receives that failed, the first's status.
  ibv_wc_status receive_status() const { return receive_status_; }
  uint64_t failed_message() const { return failed_message_; }
  uint64_t completed() const { return first_; }
  // Its peer has failed: the flow may end with any request, but must end.
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
    uint32_t source_offset = 0;  // what is sent, or of the library: what is read
    RingSpace::Stretch place;    // WRITE: in the target; READ, atomic: in the landing
    uint64_t receive = 0;        // which receive it takes
    uint64_t original = 0;       // atomics: the value to be found
    bool shared = false;         // on the shared counter
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
  Random random_;  // for what is sent
  Random mood_;    // for when

  Buffer& source_;
  Buffer& landing_;
  Buffer& library_;
  Buffer& target_;
  Buffer& inbox_;
  Buffer& counter_;
  // Onto the target, bound at the receiver's end; closed by a message, opened again when that has come.
  memory::Region& window_;
  bool window_is_open_ = false;
  bool window_may_close_ = false;
  // The sender's own, which requests without packets bind and invalidate in turn. Each must be executed once:
  // a second time it would fail.
  memory::Region& own_window_;
  uint64_t local_requests_ = 0;
  uint8_t own_tag_ = 0;
  ibv_mw mw_{};  // as the application holds them
  ibv_mr mr_{};
  RingSpace landing_space_;
  RingSpace target_space_;
  RingSpace inbox_space_;

  // Messages from first_ (the oldest not known to be complete) to the last drawn; those before next_post_
  // are posted, for those before next_receive_ receives are.
  std::deque<Message> messages_;
  uint64_t first_ = 0;
  uint64_t next_post_ = 0;
  uint64_t next_receive_ = 0;
  uint32_t packets_drawn_ = 0;
  bool all_drawn_ = false;
  uint32_t unsignaled_bytes_ = 0;
  std::deque<Receive> receives_;  // posted, not completed
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
