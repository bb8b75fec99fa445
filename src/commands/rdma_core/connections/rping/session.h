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

// What a command line of rping asks for.
struct PingPlan {
  bool server = false;
  bool persistent = false;
  bool verbose = false;
  bool validate = false;
  bool debug = false;
  bool own_queue_pair = false;  // made by libibverbs, and brought up by us
  int count = 0;                // 0: without end
  int bytes = 64;
  bool json = false;
};

// How far a session is. The numbers are in what rping says of a step that does not come.
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

// One end of a connection of rping's, with all that it is made of: the ping of a client goes to its server by
// the server's RDMA READ, and back by its WRITE; between them both send messages. Who holds a session calls
// it from one thread; sessions of a persistent server have a thread and a channel each.
//
// Functions answer true, or false after they have said why.
class Session {
 public:
  // `id` is the connection's, or will be; it and the channel of its events outlive the session.
  Session(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool prepare();  // once the id has a device
  bool await(Step wanted, const char* name);
  // While a server waits for its client, the client's first message may come before the event.
  bool await_connected();
  bool connect();  // the client's
  bool accept();   // the server's
  bool disconnect();

  bool serve();  // until the client disconnects
  bool ping();   // so many times, or until the server disconnects

  // Whether an event of failure came, which has had its word.
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
  bool bring_up();  // a queue pair of our own
  rdma_conn_param connection() const;

  bool post_receive();
  bool post_message();
  bool post_rdma(ibv_wr_opcode opcode, size_t bytes);
  void advertise(const Buffer& buffer);

  bool progress();  // waits for anything, and takes it
  bool at_end() const { return step_ == Step::kDisconnected || step_ == Step::kError; }
  void take_event(const rdma_cm_event& event);
  void take_completions();
  void take(const ibv_wc& completion);
  void take_message(const ibv_wc& completion);
  void fail(const std::string& sentence, const std::string& remedy = {});
  bool missed(const char* name) const;
  bool mirror();           // one round of the server's
  bool round(int number);  // one of the client's
  bool fits() const;

  const PingPlan plan_;
  rdma_event_channel* channel_;
  rdma_cm_id* id_;
  Domain domain_;
  CompletionChannel completions_;
  Queue queue_;
  QueuePair own_pair_;
  QueuePairOfId pair_of_id_;
  Buffer received_;  // messages
  Buffer sent_;
  Buffer sink_;    // where a ping ends: by READ at the server, by WRITE at the client
  Buffer source_;  // where the client's begins
  Advertisement other_ = {};
  Step step_ = Step::kIdle;
  bool established_ = false;
  bool failed_by_event_ = false;
  int pings_ = 0;
};

}  // namespace verbena::rdma_core
