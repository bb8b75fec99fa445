// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_cma.h>

#include "libraries/rsockets/flow_control.h"
#include "libraries/rsockets/socket.h"
#include "libraries/rsockets/verbs_handles.h"

namespace verbena::rsockets {

// Moves the data of a stream rsocket: owns the queue pair, the buffers, and the flow control of both
// directions.
//
// Threads act in three roles, with at most one thread at a time in each role. The *sender* calls send(),
// write() and announce(). The *reader* calls read() and peek(). The *poller* handles completions under
// poll_mutex_, and may be any thread. No function sleeps.
class StreamQp {
 public:
  // Creates a queue pair on `id`, registers its buffers, and posts its receives. Adapts the `wanted` sizes to
  // the device's limits: sizes() returns the result. Errors: those of the verbs; ENOMEM if there is no memory
  // for the buffers. REQUIRES: `id` is bound to a device
  static Result<std::unique_ptr<StreamQp>> create(rdma_cm_id* id, const Sizes& wanted);
  // REQUIRES: the identifier that create() got still exists
  ~StreamQp();
  StreamQp(const StreamQp&) = delete;
  StreamQp& operator=(const StreamQp&) = delete;

  // introduction() returns the connection data for the peer; meet() stores the peer's connection data and
  // opens the connection. REQUIRES: meet() was called before any function declared below
  ConnectData introduction() const;
  void meet(const ConnectData& peer);

  // ---- state of the connection

  // is_up() returns whether the connection can send control messages. is_readable() returns whether more data
  // may arrive. is_writable() returns whether the application may still send data.
  bool is_up() const { return has(kUp); }
  bool is_readable() const { return has(kReadable); }
  bool is_writable() const { return has(kWritable); }
  void stop_reading() { drop(kReadable); }
  void stop_writing() { drop(kWritable); }
  // Ends the connection after the peer has ended it. First handles the completions in the queue, at least
  // once: completions of data that the peer sent before may come late. Repeats this until `deadline` or until
  // the connection is down.
  void end(TimePoint deadline);
  // Ends the connection at once. If the connection was up and `error` is not 0, marks the connection as
  // broken, and stores `error` for take_error() unless an earlier error waits there.
  void break_off(int error);
  bool is_broken() const { return broken_.load(std::memory_order_acquire); }
  // Returns the error that broke the connection, for SO_ERROR, and clears it: the next call returns 0.
  int take_error() { return error_.exchange(0, std::memory_order_acq_rel); }

  // Handles all completions in the queue, posts receives again, and grants credits to the peer. Returns true
  // if there were completions. Any thread may call.
  bool progress() {
    const std::lock_guard lock(poll_mutex_);
    return poll();
  }
  // Returns the conditions in `interest` that hold now. Adds POLLERR and POLLHUP if they hold, as poll(2)
  // does. Handles no completions.
  Interest look(Interest interest) const;
  int event_descriptor() const { return channel_->fd; }
  // Requests an event: the next completion makes event_descriptor() readable.
  void arm();
  // Consumes an event of event_descriptor(). If `again` is true, arms the next event, because other threads
  // wait for it.
  void take_event(bool again);

  // send() sends the next bytes of `from` in one message; write() writes them to memory `to` that the peer
  // has mapped. Both take at most `most` bytes, advance `from`, and return the number of bytes taken. For the
  // sender only. REQUIRES: from.size() > 0; window().may_send() for send(), window().has_room() for write()
  Result<uint32_t> send(Buffers& from, uint32_t most);
  Result<uint32_t> write(Buffers& from, uint32_t most, const BufferAddress& to);
  // Writes `entry`, which describes a mapped buffer, to entry `index` of the peer's table, and announces the
  // entry with a message. For the sender only. REQUIRES: window().has_room() and window().has_credit()
  Result<void> announce(uint32_t index, const IomapEntry& entry);
  const SendWindow& window() const { return *send_window_; }

  // Copy received bytes to `into`, as many as are available and fit, and return their number. read() advances
  // `into` and releases the bytes; peek() leaves them unread. For the reader only.
  size_t read(Buffers& into);
  size_t peek(Buffers into) const;

  // Sends a control message. Returns false if the connection is down, or kControlSlots control messages are
  // still in flight.
  Result<bool> control(Control what);
  // Posts an empty RDMA WRITE, which the peer's queue pair acknowledges without its application. If the peer
  // is gone, the retries of the WRITE fail, which breaks the connection.
  void keep_alive();

  const IomapTable& mapped_by_peer() const { return *iomaps_; }
  uint32_t peers_iomap_entries() const { return peer_.iomap_entries; }
  const Sizes& sizes() const { return sizes_; }

 private:
  static constexpr uint32_t kControlSlots = 4;  // the maximum number of control messages in flight
  static constexpr uint32_t kUp = 1, kReadable = 2, kWritable = 4;

  // An RDMA WRITE to post, with immediate data if there is a message.
  struct Write {
    Operation operation;  // `operation` and `bytes` come back in the completion's wr_id
    uint32_t bytes = 0;   // used bytes of the send ring; for kControl, the Control value
    std::optional<Message> message{};
    BufferAddress to{};
    std::array<ibv_sge, 2> pieces{};  // the data: in the send ring, or inline
    int count = 0;                    // of `pieces`
    unsigned flags = 0;
  };

  explicit StreamQp(rdma_cm_id* id) : id_(id) {}
  Result<void> open(const Sizes& wanted);
  Result<void> open_queues();
  Result<void> create_queue_pair();
  Result<void> open_buffers();
  Result<void> post_receives(uint32_t count);
  Result<void> post(const Write& write);
  Result<void> post_data(Write write, Buffers& from, uint32_t length);
  Result<void> post_control(Control what, std::optional<Message> message);

  // REQUIRES for the functions up to grant(): poll_mutex_ is held
  bool poll();
  void handle_received(const ibv_wc& completion);
  void handle_sent(const ibv_wc& completion);
  void handle_message(Message message, uint32_t written);
  void handle_control(Control what);
  void answer_peer();
  void grant();
  bool has_control_room() const { return controls_posted_.load() - controls_done_.load() < kControlSlots; }

  bool has(uint32_t flag) const { return (flags_.load(std::memory_order_acquire) & flag) != 0; }
  void drop(uint32_t flags) { flags_.fetch_and(~flags, std::memory_order_acq_rel); }

  rdma_cm_id* const id_;
  Sizes sizes_;
  CompletionChannel channel_;
  CompletionQueue queue_;
  RegisteredPages send_memory_;     // the send ring, then slots for the data of control messages
  RegisteredPages receive_memory_;  // the two halves of the receive ring
  RegisteredPages table_memory_;    // GrantTable, then IomapTable; written by the peer
  std::unique_ptr<SendWindow> send_window_;
  std::unique_ptr<ReceiveWindow> receive_window_;
  std::unique_ptr<SendRing> ring_;
  std::unique_ptr<GrantTable> grants_;
  std::unique_ptr<IomapTable> iomaps_;
  ConnectData peer_;

  std::atomic<uint32_t> flags_{0};
  std::atomic<int> error_{0};
  std::atomic<bool> broken_{false};

  std::mutex poll_mutex_;
  std::atomic<uint32_t> controls_posted_{0}, controls_done_{0};
  uint32_t peers_entry_ = 1;  // entry of the peer's table for our next grant; the connect data had the first
  uint32_t events_ = 0;       // events taken but not acknowledged yet
  uint32_t receives_to_post_ = 0;
};

}  // namespace verbena::rsockets
