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

// The location of a buffer, which a client of rping sends as 16 bytes with numbers in network order.
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

// Fills the buffer with the ping of this number: "rdma-ping-NUMBER: ", then letters that begin one further
// with each ping. The last byte is zero.
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
// returns it by RDMA WRITE. Before each of these, the client sends a message with a buffer's address. After
// each, the server sends a message whose content does not matter. One thread uses a session. Each session of
// a persistent server has a thread and an event channel of its own.
//
// Functions return true, or false after reporting the error.
class Session {
 public:
  // `id` is the identifier of the connection, present or future. `id` and `channel` must outlive the session.
  Session(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id)
      : plan_(plan), channel_(channel), id_(id) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool prepare();  // creates all objects; call once the id has a device
  // Waits for the state `wanted`, called `name` in messages. Fails if the connection ends.
  bool await(Step wanted, const char* name);
  // Waits until the connection is established. The server may receive the client's first message before the
  // ESTABLISHED event, and that message counts as well.
  bool await_connected();
  bool connect();  // client only
  bool accept();   // server only
  // Disconnects, and waits for the DISCONNECTED event unless it has come already. If rdma_disconnect() fails,
  // returns false without a report.
  bool disconnect();

  bool serve();  // answers pings until the client disconnects
  bool ping();   // sends `plan.count` pings, or pings until the server disconnects

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

  bool make_queue_pair();
  bool make_buffers();
  bool make_buffer(Buffer& buffer, size_t bytes, int access, const char* name);
  bool bring_up();  // moves an own queue pair to RTS
  rdma_conn_param connection() const;

  ibv_qp* queue_pair() const { return own_pair_ ? own_pair_.get() : id_->qp; }
  bool post_receive();
  bool post_message() { return post(IBV_WR_SEND, sent_, kAdvertisementBytes); }
  // Posts a message, or a READ or WRITE of the buffer that the client has advertised.
  bool post(ibv_wr_opcode opcode, const Buffer& buffer, size_t bytes);
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
