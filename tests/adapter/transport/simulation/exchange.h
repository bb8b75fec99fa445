// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "adapter/transport/simulation/host.h"
#include "base/random.h"

namespace verbena::transport {

// The QPs that exchange messages, and the source of their receive requests.
enum class Exchanging : uint8_t {
  kUc,        // UC, each with its own receive queue
  kUcShared,  // UC, one shared receive queue
  kRcShared,  // RC, one shared receive queue
  kXrc,       // XRC: each message names one of several shared receive queues
};

struct ExchangeOptions {
  uint64_t seed = 1;
  Exchanging what = Exchanging::kUc;
  net::Conditions conditions;
  uint32_t senders = 1;
  uint32_t queues = 1;     // number of shared receive queues, for kXrc
  uint32_t messages = 50;  // per sender
  uint32_t max_message = 5000;
  uint32_t mtu = 1024;
  uint32_t receives = 32;  // maximum number posted per queue
  uint32_t limit = 0;      // if set, a shared queue is refilled only after its limit event
  uint8_t timeout = 1;     // as in ibv_qp_attr; 1 is 8 us
  uint32_t lateness = 0;   // per mille of receives that are posted late

  static ExchangeOptions draw(uint64_t seed, Exchanging what);
};

// Several QPs of one host send messages to peers on another over a simulated network, and all results are
// checked. For RC and XRC: each message arrives once, in its sender's order, intact. For UC: the same for
// each message that arrives; one that does not arrive uses up no receive request and changes no memory except
// its own destination. For shared queues: each request is used for one message and completes.
class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options);

  // Runs until all messages are sent and the network is silent. False: a check failed; complaint() describes
  // it.
  bool run();
  const std::string& complaint() const { return complaint_; }

  uint64_t sent() const { return uint64_t{options_.senders} * options_.messages; }
  uint64_t arrived() const { return arrived_; }    // number of messages that used a receive request
  uint64_t expected() const { return expected_; }  // that number if nothing were lost
  uint64_t limit_events() const { return limit_.events; }
  uint64_t not_ready() const { return hosts_[1]->counter(kRnrNaksSent); }
  uint64_t sent_again() const { return hosts_[0]->counter(kRetransmittedPackets); }
  net::SimulatedNetwork& network() { return network_; }

 private:
  struct Message {
    ibv_wr_opcode opcode = IBV_WR_SEND_WITH_IMM;
    uint32_t length = 0;
    uint32_t source = 0;  // offset of the data that is sent or read
    uint32_t place = 0;   // WRITE: offset in the target; READ, atomic: offset in the landing buffer
    uint32_t queue = 0;   // for kXrc

    bool takes_receive() const {
      return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    }
    bool writes() const { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
  };
  struct Sender {
    SimulatedQp* from = nullptr;
    SimulatedQp* to = nullptr;
    Buffer* target = nullptr;   // for its WRITEs, each in a place of its own
    Buffer* landing = nullptr;  // for its READs and atomics, each in a place of its own
    std::vector<Message> messages;
    uint32_t posted = 0;
    uint32_t completed = 0;
    std::vector<bool> arrived;
    std::vector<int64_t> last_of_queue;  // last message that arrived, by queue
  };
  // A receive queue and its completions. Each receive request has a place in the inbox; wr_id is its index.
  struct Inbox {
    uint32_t index = 0;
    queues::RecvQueue* ring = nullptr;
    queues::CompletionQueue* cq = nullptr;
    queues::SharedReceiveQueue* shared = nullptr;
    Buffer* buffer = nullptr;
    std::vector<bool> posted;
    TimePoint idle_until = kNever;
  };
  struct Limit : queues::LimitListener {
    void on_limit_reached() override { ++events; }
    uint64_t events = 0;
  };

  bool reliable() const {
    return options_.what == Exchanging::kRcShared || options_.what == Exchanging::kXrc;
  }
  void make_queues();
  void make_sender(uint32_t index);
  void connect(Sender& sender);
  Message draw_message(uint32_t& place, uint32_t& landing);
  bool post_sends();
  void post(Sender& sender, uint32_t number);
  void post_receives(Inbox& inbox);
  void poll();
  template <class Take>
  static void take_all(queues::CompletionQueue& cq, Take take);
  void on_sent(Sender& sender, const ibv_wc& wc);
  void on_received(Inbox& inbox, const ibv_wc& wc);
  bool is_done(const Sender& sender, const Message& m) const;
  bool step();
  bool all_complete() const;
  void check_end();
  void check_writes(const Sender& sender);
  void check_receives();
  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }

  const ExchangeOptions options_;
  Random random_;
  net::SimulatedNetwork network_;
  TimePoint started_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Limit limit_;
  SimulatedQp nobody_;  // listener of the CQs of XRC
  queues::SharedReceiveQueueTable table_{0};
  std::vector<std::unique_ptr<queues::CompletionQueue>> cqs_;
  std::vector<std::unique_ptr<queues::SharedReceiveQueue>> shared_;
  std::deque<Inbox> inboxes_;
  std::deque<Sender> senders_;
  Buffer* source_ = nullptr;
  Buffer* library_ = nullptr;
  Buffer* counter_ = nullptr;
  uint64_t added_ = 0;
  uint64_t arrived_ = 0;
  uint64_t expected_ = 0;
  std::string complaint_;
};

}  // namespace verbena::transport
