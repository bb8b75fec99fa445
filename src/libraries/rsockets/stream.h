// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/tcp.h>

#include "libraries/rsockets/accept_queue.h"
#include "libraries/rsockets/local_iomaps.h"
#include "libraries/rsockets/service.h"
#include "libraries/rsockets/stream_options.h"
#include "libraries/rsockets/stream_qp.h"

namespace verbena::rsockets {

// A stream rsocket: the semantics of a TCP socket over one reliable connection.
//
// The service's thread handles connection events and timers; the application's threads move the data
// (stream_qp.h). Lock order: `event_mutex_` (held while an event is handled), then `mutex_` (phase and
// identifier). send_mutex_ and receive_mutex_ serialize senders and readers; a call holds them while it
// waits. No lock is held while an identifier is destroyed.
class Stream final : public Socket,
                     public CmHandler,
                     public ServiceClient,
                     public std::enable_shared_from_this<Stream> {
 public:
  static Result<std::shared_ptr<Stream>> create(int family);
  ~Stream() override;

  int number() const override { return number_.get(); }
  Result<void> bind(const Address& address) override;
  Result<void> listen(int backlog) override;
  Result<std::shared_ptr<Socket>> accept() override;
  Result<void> connect(const Address& address) override;
  Result<void> shutdown(int how) override;
  void close() override;
  Result<size_t> receive(Buffers into, int flags, Address* source) override;
  Result<size_t> send(Buffers from, int flags, const Address* destination) override;
  Result<Address> local_address() override;
  Result<Address> peer_address() override;
  Result<void> set_option(int level, int name, const void* value, socklen_t length) override;
  Result<void> get_option(int level, int name, OptionValue value) override;
  Result<off_t> map(void* memory, size_t length, int protection, off_t offset) override;
  Result<void> unmap(void* memory, size_t length) override { return maps_.unmap(memory, length); }
  Result<size_t> write_mapped(const void* from, size_t bytes, off_t offset, int flags) override;

  Interest ready(Interest interest) override;
  Interest arm(Interest interest) override {
    if (phase() == Phase::kConnected) qp_->arm();
    return ready(interest);
  }
  int event_descriptor() override { return phase() == Phase::kConnected ? qp_->event_descriptor() : -1; }
  void take_event() override {
    if (phase() == Phase::kConnected) qp_->take_event(waiters().is_shared());
  }

 private:
  enum class Phase : uint8_t {
    kNew,
    kBound,
    kListening,
    kResolvingAddress,
    kResolvingRoute,
    kConnecting,
    kAccepting,
    kConnected,  // connected now or before: StreamQp knows which
    kFailed,     // the connection could not be set up
    kClosed,     // the application closed the stream
  };
  // A connection request that was neither accepted nor rejected yet.
  struct Request {
    rdma_cm_id* id;
    ConnectData peer;
    rdma_conn_param parameters;
  };
  using Queue = AcceptQueue<Request, Stream>;

  explicit Stream(Service& service, int family) : service_(service), family_(family) {}
  static Result<UniqueFd> open_number();
  Result<rdma_cm_id*> create_identifier();
  Result<void> begin_again();

  // ---- setting up a connection, in the service's thread and in connect()

  // REQUIRES for the functions up to fail_opening(): mutex_ is held
  Result<void> resolve_address();
  Result<void> resolve_route();
  Result<void> request_connection();
  Result<void> established(const rdma_conn_param& parameters);
  // Fails the setup of the connection if a step has failed.
  void step(Result<void> done) {
    if (!done) fail_opening(done.error().code);
  }
  void fail_opening(int error);
  bool is_opening() const;
  Phase phase() const { return phase_.load(std::memory_order_acquire); }

  void on_cm_event(const rdma_cm_event& event) override;
  void on_event_of_mine(const rdma_cm_event& event);
  void on_established();
  void on_failure(const rdma_cm_event& event, int fallback);
  void on_disconnected();
  void on_timer() override;

  // ---- listening side
  void on_request(const rdma_cm_event& event);
  void start_serving();
  void serve_requests();
  void set_turn();
  Result<void> answer(const Request& request);
  static void refuse(rdma_cm_id* id) { ::rdma_reject(id, nullptr, 0); }
  void turn_away(const Request& request);
  static std::shared_ptr<void> destroyed_later(rdma_cm_id* id);
  void leave_listener(bool opened);

  // ---- moving data
  Result<StreamQp*> opened(int flags);
  Result<void> await_sending(StreamQp& qp, bool may_block);
  Result<void> announce_maps(StreamQp& qp, bool may_block);
  template <class SendPiece>
  Result<size_t> send_pieces(Buffers& from, int flags, SendPiece send_piece);
  int sending_error(StreamQp& qp) const;
  void wake_waiters() { waiters().wake(phase() == Phase::kConnected ? qp_->look(~0u) | kOpened : ~0u); }
  void part_if_broken();

  // REQUIRES for these three: mutex_ is held
  StreamOptions::Stage stage() const;
  tcp_info information() const;
  uint32_t largest_segment() const;

  Service& service_;
  const int family_;
  OwnFd number_;  // reserves the descriptor number; an accepted stream gets it in accept()

  std::mutex event_mutex_;
  bool detached_ = false;  // set by the destructor: ignore further events

  std::mutex mutex_;
  std::atomic<Phase> phase_{Phase::kNew};
  rdma_cm_id* id_ = nullptr;
  Address bound_, destination_;
  int retries_ = 0;
  int error_ = 0;          // what SO_ERROR returns after a connection could not be set up
  bool reported_ = false;  // connect() has returned success for this connection
  StreamOptions options_;
  std::unique_ptr<StreamQp> qp_;     // set when a connection is requested or accepted
  std::atomic<bool> parted_{false};  // rdma_disconnect() was called
  std::atomic<bool> shut_{false};    // the application has shut down writing

  std::mutex send_mutex_;
  LocalIomaps maps_;
  std::mutex receive_mutex_;

  std::unique_ptr<Queue> queue_;      // only for a listener
  std::atomic<bool> serving_{false};  // as a listener, answers requests; false right after listen()
  std::mutex turn_mutex_;
  TimePoint turn_ = kNever;         // when the service calls serve_requests(); guarded by turn_mutex_
  std::weak_ptr<Stream> listener_;  // null unless this stream is being accepted
};

}  // namespace verbena::rsockets
