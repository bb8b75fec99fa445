// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/events.h"
#include "commands/rdma_core/connections/handles.h"
#include "commands/rdma_core/connections/rping/message.h"

namespace verbena::rdma_core {

// The options of rping.
struct PingPlan {
  bool server = false;
  bool persistent = false;
  bool verbose = false;
  bool validate = false;
  bool debug = false;
  bool own_queue_pair = false;  // created by libibverbs and modified by us, not by librdmacm
  int count = 0;                // 0: unlimited
  int bytes = 64;
  bool json = false;
};

// The state of a session. rping prints the numbers in messages about a missing step.
enum class Step {
  kIdle = 1,
  kConnectRequest,
  kAddressResolved,
  kRouteResolved,
  kConnected,
  kReadAdvertised,
  kReadComplete,
  kWriteAdvertised,
  kWriteComplete,
  kDisconnected,
  kError,
};

// One end of an rping connection, with all its objects. The server fetches a client's ping by RDMA READ and
// returns it by WRITE. In between both ends send messages with buffer addresses. Each session is used by one
// thread; the sessions of a persistent server have a thread and an event channel each.
//
// Functions return true, or false after reporting the error.
class Session {
 public:
  // `id` is the connection's, or will be; `id` and its channel must outlive the session.
  Session(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool prepare();  // call once the id has a device
  bool await(Step wanted, const char* name);
  // Waits for the connection. The server may receive the client's first message before the ESTABLISHED event.
  bool await_connected();
  bool connect();  // client only
  bool accept();   // server only
  bool disconnect();

  bool serve();  // until the client disconnects
  bool ping();   // `plan.count` times, or until the server disconnects

  // Whether an event of failure came; it has been reported.
  bool failed_by_event() const { return failed_by_event_; }
  int pings() const { return pings_; }
  void debug(const char* format, ...) const __attribute__((format(printf, 2, 3)));
  nlohmann::ordered_json description() const;

 private:
  struct Buffer {
    std::vector<char> bytes;
    Region region;
  };

  bool make_queue_pair();
  bool make_buffers();
  bool make_buffer(Buffer& buffer, size_t bytes, int access, const char* name);
  bool bring_up();  // for own_queue_pair
  rdma_conn_param connection() const;

  bool post_receive();
  bool post_message();
  bool post_rdma(ibv_wr_opcode opcode, size_t bytes);
  void advertise(const Buffer& buffer);

  bool progress();  // waits for an event or a completion and handles it
  bool at_end() const { return step_ == Step::kDisconnected || step_ == Step::kError; }
  void take_event(const rdma_cm_event& event);
  void take_completions();
  void take(const ibv_wc& completion);
  void take_message(const ibv_wc& completion);
  void fail(const std::string& sentence, const std::string& remedy = {});
  bool missed(const char* name) const;
  bool mirror();           // one round of the server
  bool round(int number);  // one round of the client
  bool fits() const;

  const PingPlan plan_;
  rdma_event_channel* channel_;
  rdma_cm_id* id_;
  Domain domain_;
  CompletionChannel completions_;
  Queue queue_;
  QueuePair own_pair_;
  QueuePairOfId pair_of_id_;
  Buffer received_;  // holds messages
  Buffer sent_;
  Buffer sink_;    // receives a ping: by READ at the server, by WRITE at the client
  Buffer source_;  // holds the client's ping
  Advertisement other_ = {};
  Step step_ = Step::kIdle;
  bool established_ = false;
  bool failed_by_event_ = false;
  int pings_ = 0;
};

}  // namespace verbena::rdma_core
