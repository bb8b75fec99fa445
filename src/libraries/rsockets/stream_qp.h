// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include <rdma/rdma_cma.h>

#include "base/result.h"
#include "libraries/rsockets/buffers.h"
#include "libraries/rsockets/connect_data.h"
#include "libraries/rsockets/grant_table.h"
#include "libraries/rsockets/iomap_table.h"
#include "libraries/rsockets/message.h"
#include "libraries/rsockets/receive_window.h"
#include "libraries/rsockets/send_ring.h"
#include "libraries/rsockets/send_window.h"
#include "libraries/rsockets/socket.h"
#include "libraries/rsockets/verbs_handles.h"

namespace verbena::rsockets {

// The data path of a stream rsocket: a queue pair, its buffers, and the flow control of both directions.
//
// Three roles, one thread at a time each: the sender, the reader, and the thread that handles completions,
// which may be any thread (poll_mutex_). No function blocks.
class StreamQp {
 public:
  // Creates a queue pair on the identifier and posts its receives. Errors: those of the verbs.
  // REQUIRES: the identifier is bound to a device
  static Result<std::unique_ptr<StreamQp>> create(rdma_cm_id* id, const Sizes& wanted);
  // REQUIRES: the identifier still exists
  ~StreamQp();
  StreamQp(const StreamQp&) = delete;
  StreamQp& operator=(const StreamQp&) = delete;

  // Our connection data for the peer, and the peer's for us. REQUIRES: meet() precedes all calls below
  ConnectData introduction() const;
  void meet(const ConnectData& peer);

  // ---- state of the connection

  // Up: may send control messages. Readable: more data may arrive. Writable: data may be sent.
  bool is_up() const { return has(kUp); }
  bool is_readable() const { return has(kReadable); }
  bool is_writable() const { return has(kWritable); }
  void stop_reading() { drop(kReadable); }
  void stop_writing() { drop(kWritable); }
  // Ends the connection because the peer is gone, after handling the data that still arrive.
  void end();
  // Ends the connection for good; SO_ERROR will return `error`.
  void break_off(int error);
  bool is_broken() const { return broken_.load(std::memory_order_acquire); }
  // Returns the error that broke the connection, once; then 0.
  int take_error() { return error_.exchange(0, std::memory_order_acq_rel); }

  // Any thread: handles completions. True if there were any.
  bool progress();
  // Returns those of `interest` that are ready.
  Interest look(Interest interest) const;
  int event_descriptor() const { return channel_->fd; }
  void arm();
  // Consumes an event of event_descriptor(). `again`: other threads wait for the next event, so re-arm.
  void take_event(bool again);

  // Sender: sends a message, or writes to mapped memory, with at most `most` bytes. Returns the bytes taken.
  // REQUIRES: from.size() > 0, and window().may_send() or, for write(), window().has_room()
  Result<uint32_t> send(Buffers& from, uint32_t most);
  Result<uint32_t> write(Buffers& from, uint32_t most, const BufferAddress& to);
  // Sender: announces a buffer mapped under this index to the peer. REQUIRES: has_room() and has_credit()
  Result<void> announce(uint32_t index, const IomapEntry& entry);
  const SendWindow& window() const { return *send_window_; }

  // Reader: copies the bytes at hand, at most as many as `into` takes. peek() leaves them unread.
  size_t read(Buffers& into);
  size_t peek(Buffers into) const;

  // Sends a control message. False if the connection is down or has no room for one.
  Result<bool> control(Control what);
  void keep_alive();

  const IomapTable& mapped_by_peer() const { return *iomaps_; }
  uint32_t peers_iomap_entries() const { return peer_.iomap_entries; }
  const Sizes& sizes() const { return sizes_; }

 private:
  static constexpr uint32_t kControlSlots = 4;
  static constexpr uint32_t kUp = 1, kReadable = 2, kWritable = 4;

  // An RDMA WRITE to post, with immediate data if there is a message.
  struct Write {
    Operation operation;  // `operation` and `bytes` come back in the completion's wr_id
    uint32_t bytes = 0;   // bytes of the send ring; of kControl: the Control
    std::optional<Message> message;
    BufferAddress to{};
  };

  explicit StreamQp(rdma_cm_id* id) : id_(id) {}
  Result<void> open(const Sizes& wanted);
  Result<void> open_queues();
  Result<void> create_queue_pair();
  Result<void> open_buffers();
  Result<void> post_receives(uint32_t count);
  Result<void> post(const Write& write, const ibv_sge* pieces, int count, unsigned flags);
  // Data prepared for a request.
  struct Staged {
    std::array<ibv_sge, 2> pieces;
    int count;
    unsigned flags;
    uint32_t ring_bytes;
  };
  Staged stage(Buffers& from, uint32_t length);
  Staged stage(const void* from, uint32_t length);

  // REQUIRES, for all of these: poll_mutex_ is held
  bool poll();
  void handle(const ibv_wc& completion);
  void handle_received(const ibv_wc& completion);
  void handle_sent(const ibv_wc& completion);
  void handle_message(Message message, uint32_t written);
  void handle_control(Control what);
  void take_grant();
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
  RegisteredPages table_memory_;    // granted buffers, then mapped ones; written by the peer
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
  uint32_t peers_entry_ = 1;  // the peer's table entry for our next buffer; the first was in the connect data
  uint32_t events_ = 0;       // events taken but not acknowledged yet
  uint32_t receives_to_post_ = 0;
};

}  // namespace verbena::rsockets
