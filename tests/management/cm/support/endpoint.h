// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "management/cm/manager.h"

namespace verbena::cm {

// The kinds of calls to a Handler.
enum class Heard : uint8_t {
  kRequest,
  kReply,
  kReady,
  kRejected,
  kUnreachable,
  kDelay,
  kDisconnectRequest,
  kDisconnected,
  kTimeWaitExit,
  kSidrRequest,
  kSidrReply,
};
const char* heard_name(Heard heard);
inline void PrintTo(Heard heard, std::ostream* out) {
  *out << heard_name(heard);
}
inline void PrintTo(State state, std::ostream* out) {
  *out << state_name(state);
}
inline void PrintTo(MessageType type, std::ostream* out) {
  *out << message_name(type);
}

struct Event {
  Heard heard;
  LocalId id;
  uint64_t context;
  uint16_t reason = 0;                  // reason of a REJ; type of an unanswered message; status of SIDR_REP
  bool has_drep = false;                // for kDisconnected
  uint32_t remote_id = 0;               // for kRequest and kSidrRequest
  uint32_t number = 0;                  // QPN in a SIDR_REP
  std::vector<uint8_t> private_data{};  // without truncation
};

struct Datagram {
  Mad mad;
  roce::Path path;
  bool from_roce_port = false;

  MessageType type() const { return decode_header(mad.bytes)->type; }
};

// The address 10.0.0.n of the test network.
roce::Address address(uint8_t host);

// A host in a test: a manager, the datagrams that it has sent and that were not yet carried, and the events
// that its handler has received.
class Endpoint : public Sink, public Handler {
 public:
  explicit Endpoint(uint8_t host, ManagerConfig config = {}, uint64_t seed = 1);

  const uint8_t host;
  Manager manager;
  std::deque<Datagram> sent;
  std::vector<Event> heard;
  std::vector<std::pair<uint32_t, TimePoint>> timers;  // with their account, as they were set
  Admission admission = Admission::admit(77);
  int admissions_asked = 0;
  bool has_roce_port = false;   // sends from UDP port 4791, as a Verbena agent does
  uint32_t restorable_qpn = 0;  // QPN of the connection that may be restored; 0: none

  // Returns the path to another host.
  roce::Path path_to(const Endpoint& other) const;
  ConnectRequest parameters_to(const Endpoint& other, uint32_t qpn = 100) const;
  ConnectReply reply_parameters(uint32_t qpn = 200) const;

  void receive(const Datagram& datagram, TimePoint now);
  State state(LocalId id) const;
  Event last() const { return heard.back(); }
  // Removes and returns the only datagram sent.
  Datagram take();
  template <class Message>
  Message take_as() {
    return *decode<Message>(take().mad.bytes);
  }

  void send(const Mad& mad, const roce::Path& path) override { sent.push_back({mad, path, has_roce_port}); }
  void on_timer_set(uint32_t account, TimePoint when) override { timers.emplace_back(account, when); }
  Admission admit(const Req& req, const Arrival& arrival) override;
  Admission admit(const SidrReq& req, const Arrival& arrival) override;
  Return may_return(uint32_t qpn, const Arrival&) override {
    const bool is_it = qpn == 0 || qpn == restorable_qpn;
    return restorable_qpn != 0 && is_it ? Return::kPossible : Return::kNever;
  }
  void on_request(LocalId id, uint64_t context, const Req& req, const Arrival& arrival) override;
  void on_reply(LocalId id, uint64_t context, const Rep& rep) override;
  void on_ready(LocalId id, uint64_t context, const Rtu& rtu) override;
  void on_rejected(LocalId id, uint64_t context, const Rej& rej) override;
  void on_unreachable(LocalId id, uint64_t context, MessageType unanswered) override;
  void on_delay(LocalId id, uint64_t context, const Mra& mra) override;
  void on_disconnect_request(LocalId id, uint64_t context, const Dreq& dreq) override;
  void on_disconnected(LocalId id, uint64_t context, const Drep* drep) override;
  void on_time_wait_exit(LocalId id, uint64_t context) override;
  void on_sidr_request(LocalId id, uint64_t context, const SidrReq& req, const Arrival& arrival) override;
  void on_sidr_reply(LocalId id, uint64_t context, const SidrRep& rep) override;

 protected:
  // Called after the event has been recorded.
  virtual void react(const Event&) {}

 private:
  void hear(Event event);
};

// Two endpoints with a lossless network between them and a manual clock.
class Pair {
 public:
  explicit Pair(ManagerConfig config = {}) : a(1, config, 11), b(2, config, 22) {}

  Endpoint a;
  Endpoint b;
  TimePoint now{std::chrono::hours(1)};

  Endpoint& other(const Endpoint& of) { return &of == &a ? b : a; }
  // Carries all datagrams, including those sent in reply, until none is left.
  void carry();
  // Advances time; runs timers and carries datagrams.
  void pass(Duration time);
  // The same, but all datagrams are lost.
  void pass_in_silence(Duration time);

  // Connects a to b and returns both communication IDs.
  struct Ids {
    LocalId a;
    LocalId b;
  };
  Ids connect(uint32_t qpn_of_a = 100, uint32_t qpn_of_b = 200);
};

// A pair with a half-open connection: a has sent a request, b has received it and not replied.
class HalfOpen : public Pair {
 public:
  explicit HalfOpen(ManagerConfig config = {});
  // Lets b accept and a receive the reply.
  void reply();

  LocalId active;
  LocalId passive;
};

}  // namespace verbena::cm
