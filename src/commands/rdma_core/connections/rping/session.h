// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"

namespace verbena::rdma_core {

// The location of a client's buffer. The client of rping sends this to the server as 16 bytes, with numbers
// in network order.
struct Advertisement {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};

constexpr size_t kAdvertisementBytes = 16;
using AdvertisementBytes = std::array<uint8_t, kAdvertisementBytes>;

AdvertisementBytes encode(const Advertisement& advertisement);

// Decodes a message from the peer. Returns nullopt if its length is wrong.
std::optional<Advertisement> decode(std::span<const uint8_t> message);

// Returns the text of a received ping up to its zero byte, or all bytes if there is none.
std::string_view text_of(std::span<const char> ping);

// Fills the buffer with the ping of this number: "rdma-ping-NUMBER: ", then consecutive letters. Each ping
// starts one letter after the previous ping. The last byte is zero.
void write_ping(std::span<char> buffer, int number);

// The options of rping.
struct PingPlan {
  bool server = false;
  bool persistent = false;
  bool verbose = false;
  bool validate = false;
  bool debug = false;
  // libibverbs creates the queue pair and we modify it; otherwise librdmacm does both.
  bool own_queue_pair = false;
  int count = 0;  // number of pings; 0 for no limit
  int bytes = 64;
  bool json = false;
};

// The state of a session. rping prints its number if the session does not reach an expected state.
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
// returns it by RDMA WRITE. Before each READ and WRITE, the client sends a message with the address of its
// buffer. After each READ and WRITE, the server sends a message whose content does not matter. One thread
// uses a session. Each session of a persistent server has a thread and an event channel of its own.
//
// A function that fails throws a Failure with status -1 after its message.
class Session {
 public:
  // `id` is the identifier of the connection, present or future. `id` and `channel` must outlive the session.
  Session(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id)
      : plan_(plan), channel_(channel), id_(id) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void prepare();  // creates all objects; call once the id has a device
  // Waits for the state `wanted`, called `name` in messages. Fails if the connection ends.
  void await(Step wanted, const char* name);
  void connect();  // client only
  void accept();   // server only
  // Disconnects, and waits for the DISCONNECTED event unless it has come already. Ignores a failure of
  // rdma_disconnect().
  void disconnect();

  void serve();  // answers pings until the client disconnects
  void ping();   // sends `plan.count` pings, or pings until the server disconnects

  // Whether an event of librdmacm ended the session, such as a rejection. The session has reported it.
  bool failed_by_event() const { return failed_by_event_; }
  int pings() const { return pings_; }
  void debug(const char* format, ...) const __attribute__((format(printf, 2, 3)));
  nlohmann::ordered_json description() const;

 private:
  struct Buffer {
    std::vector<char> bytes;
    Region region;
  };

  void make_queue_pair();
  void make_buffers();
  void make_buffer(Buffer& buffer, size_t bytes, int access, const char* name);
  void bring_up();  // moves an own queue pair to RTS
  rdma_conn_param connection() const;

  ibv_qp* queue_pair() const { return own_pair_ ? own_pair_.get() : id_->qp; }
  void post_receive();
  void post_message() { post(IBV_WR_SEND, sent_, kAdvertisementBytes); }
  // Posts a message, or a READ or WRITE of the buffer that the client has advertised.
  void post(ibv_wr_opcode opcode, const Buffer& buffer, size_t bytes);
  void advertise(const Buffer& buffer);

  bool progress();  // waits for an event or a completion and handles it; false after reporting an error
  bool at_end() const { return step_ == Step::kDisconnected || step_ == Step::kError; }
  void take_event(const rdma_cm_event& event);
  void take_completions();
  void take(const ibv_wc& completion);
  void take_message(const ibv_wc& completion);
  void fail(const std::string& sentence, const std::string& remedy = {});
  [[noreturn]] void miss(const char* name) const;
  void mirror();           // one round of the server
  void round(int number);  // one round of the client

  const PingPlan plan_;
  rdma_event_channel* channel_;
  rdma_cm_id* id_;
  Domain domain_;
  CompletionChannel completions_;
  CompletionQueue queue_;
  QueuePair own_pair_;
  QueuePairOfId pair_of_id_;
  Buffer received_;  // holds messages from the peer
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
