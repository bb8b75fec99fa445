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

// The data path of a stream rsocket: a queue pair, its buffers, and the accounts of both directions.
//
// One thread at a time sends, one at a time reads. Any thread handles completions, one at a time
// (poll_mutex_). Nothing here waits.
class StreamQp {
 public:
  // Makes a queue pair on the identifier, which is bound to a device, and posts its receives. Errors: those
  // of the verbs.
  static Result<std::unique_ptr<StreamQp>> create(rdma_cm_id* id, const Sizes& wanted);
  // The identifier must still be there.
  ~StreamQp();
  StreamQp(const StreamQp&) = delete;
  StreamQp& operator=(const StreamQp&) = delete;

  // What the peer is to know, and what the peer has said. REQUIRES: meet() comes before all that follows
  ConnectData introduction() const;
  void meet(const ConnectData& peer);

  // Ups and downs. A connection that is up may send control messages; `readable`: more may come; `writable`:
  // data may be sent.
  bool is_up() const { return has(kUp); }
  bool is_readable() const { return has(kReadable); }
  bool is_writable() const { return has(kWritable); }
  void stop_reading() { drop(kReadable); }
  void stop_writing() { drop(kWritable); }
  // The peer is gone: after handling what came from it.
  void end();
  // For good, with what SO_ERROR will say.
  void break_off(int error);
  bool is_broken() const { return broken_.load(std::memory_order_acquire); }
  // What broke it, once.
  int take_error() { return error_.exchange(0, std::memory_order_acq_rel); }

  // Any thread. Handles completions; true if there were any.
  bool progress();
  // What of `interest` is there.
  Interest look(Interest interest) const;
  int event_descriptor() const { return channel_->fd; }
  void arm();
  // An event came: `again` if others count on the next one.
  void take_event(bool again);

  // Sender. One message or write of at most `most` bytes; how many were taken. REQUIRES: window().may_send(),
  // or window().has_room() for the write; from.size() > 0
  Result<uint32_t> send(Buffers& from, uint32_t most);
  Result<uint32_t> write(Buffers& from, uint32_t most, const BufferAddress& to);
  // Tells the peer of a buffer mapped under this index. REQUIRES: has_room() and has_credit()
  Result<void> announce(uint32_t index, const IomapEntry& entry);
  const SendWindow& window() const { return *send_window_; }

  // Reader. The bytes at hand, up to what there is room for.
  size_t read(Buffers& into);
  size_t peek(Buffers into) const;

  // A control message, if there is room for one; false if not.
  Result<bool> control(Control what);
  void keep_alive();

  const IomapTable& mapped_by_peer() const { return *iomaps_; }
  uint32_t peers_iomap_entries() const { return peer_.iomap_entries; }
  const Sizes& sizes() const { return sizes_; }

 private:
  static constexpr uint32_t kControlSlots = 4;
  static constexpr uint32_t kUp = 1, kReadable = 2, kWritable = 4;

  // A WRITE, with immediate data if there is a message.
  struct Write {
    Operation operation;             // comes back with the completion, as does the next
    uint32_t bytes = 0;              // of the ring; of kControl: which
    std::optional<Message> message;  // to the peer
    BufferAddress to{};
  };

  explicit StreamQp(rdma_cm_id* id) : id_(id) {}
  Result<void> open(const Sizes& wanted);
  Result<void> open_queues();
  Result<void> create_queue_pair();
  Result<void> open_buffers();
  Result<void> post_receives(uint32_t count);
  Result<void> post(const Write& write, const ibv_sge* pieces, int count, unsigned flags);
  struct Staged {
    std::array<ibv_sge, 2> pieces;
    int count;
    unsigned flags;
    uint32_t ring_bytes;
  };
  Staged stage(Buffers& from, uint32_t length);
  Staged stage(const void* from, uint32_t length);

  // REQUIRES: poll_mutex_ is held, for all of these
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
  RegisteredPages send_memory_;     // the ring, then places for what control messages carry
  RegisteredPages receive_memory_;  // the two halves
  RegisteredPages table_memory_;    // granted buffers, then mapped ones: written by the peer
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
  uint32_t peers_entry_ = 1;  // where the next buffer is granted: the first went with the connection data
  uint32_t events_ = 0;       // taken and not acknowledged
  uint32_t receives_to_post_ = 0;
};

}  // namespace verbena::rsockets
