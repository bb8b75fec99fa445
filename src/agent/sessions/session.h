// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <sys/socket.h>

#include "agent/cm/client.h"
#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/mad/dispatcher.h"
#include "agent/sessions/client_events.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_requests.h"
#include "agent/status/requests.h"
#include "agent/takeover/takeover.h"
#include "base/bytes.h"
#include "base/unique_fd.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// The classes that carry out requests, by subject.
struct Requests {
  LinkRequests links;
  SlotRequests slots;
  DomainRequests domains;
  ChannelRequests channels;
  CaptureRequests captures;
  StatusRequests status;
  MadDispatcher mads;
  TraceRequests traces;
};

// Handles a client's connection: checks each request, passes it to the class that carries it out, and sends
// the reply. Trusts no input: an invalid message gets an error reply. A client that does not receive its
// replies is disconnected, and so is one that sends unexpected descriptors.
class Session : private CmClient::Host, private ClientEvents::Client {
 public:
  // The parts of the agent that a session uses.
  struct Parts {
    EventLoop& loop;
    ClientSockets& sockets;
    Requests& requests;
    Takeover& takeover;
    const TakeoverRecord& takeover_state;
    const LinkPublisher& links;
    const SlotLeases& slots;
    CmService& connection_management;
    RefusedPrograms& refused;
    const ServedUsers& served;
    AgentHost& agent;
  };
  // `share` is the quota share in which the session counts until its sockets and its pidfd are closed.
  Session(const Parts& parts, uint64_t id, UniqueFd socket, const ucred& peer, QuotaShare share = {});
  ~Session() override;

  // Answers the client's hello, if it has waited for the takeover. Called when the takeover has ended.
  void resume();
  ClientEvents& events() { return events_; }
  bool is_greeted() const { return greeted_; }
  uint64_t id() const { return client_.session; }
  uid_t uid() const { return client_.uid; }
  pid_t pid() const { return client_.pid; }
  // Returns whether the client is the standby, the agent's second process (commands/agent/standby.h).
  bool is_standby() const;
  // Returns whether the client is a device mirror (commands/agent/device_mirror.h). A mirror does not keep
  // its agent running.
  bool is_mirror() const;

 private:
  // A request that the agent carries out: its length, and whether a descriptor may come with it.
  struct Request {
    protocol::MessageType type;
    size_t bytes;
    bool takes_descriptor;
    void (*carry_out)(Session& session, const protocol::MessageHeader& header, ConstBytes message,
                      ClientFile descriptor);
  };
  static const Request kRequests[];
  struct Awaited;
  static const Request* find_request(uint16_t type);
  template <auto Role, auto Method>
  static constexpr Request request(protocol::MessageType type);
  template <auto Method, protocol::TraceCall Call = protocol::TraceCall::kNone>
  static constexpr Request cm_request(protocol::MessageType type);

  // A reason to reject a message.
  struct Fault {
    int error = 0;
    std::string_view text;
  };

  // Handles one message, or one step of an unfinished request, and returns true. The event loop then calls it
  // again. Returns false if nothing has come, the next message must wait, or the session is closing.
  bool on_readable(uint32_t events);
  bool take_events(uint32_t events);
  void listen();
  void receive(ConstBytes message, bool is_longer, bool has_files);
  std::optional<Fault> find_fault(const protocol::MessageHeader& header, ConstBytes message,
                                  bool is_longer) const;
  Result<ClientFile> take_file();
  void drop_with_files(const protocol::MessageHeader& header, const Fault& fault);
  void refuse_version(const protocol::MessageHeader& request);
  void hello(const protocol::HelloRequest& request, ClientFile takeover_state);
  void finish_hello();
  // Returns the client's connection management, which the first request for it creates.
  CmClient& connection_management();

  // ClientEvents::Client
  void on_ask_peer(uint64_t domain, uint32_t slot) override {
    parts_.requests.domains.ask_for_peer(client_.session, domain, slot);
  }
  void on_ask_channel(uint32_t own_slot, uint32_t peer_slot) override {
    parts_.requests.channels.ask_for_channel(client_.session, own_slot, peer_slot);
  }
  void on_end_heard(uint32_t own_slot, uint32_t ended) override {
    parts_.requests.channels.end_heard(client_.session, own_slot, ended);
  }
  void on_room() override { parts_.requests.channels.has_room(client_.session); }
  void on_end() override { close(); }

  // CmClient::Host
  void send_reply(ConstBytes message) override { send(message); }
  void send_error(const protocol::MessageHeader& request, int error, std::string_view text) override;
  void hang_up() override { close(); }
  uid_t user() const override { return client_.uid; }
  pid_t process() const override { return client_.pid; }
  std::string_view program() const override { return client_.program; }
  uint64_t process_identity() const override { return process_number(client_); }
  bool may_use_qpn(uint32_t qpn) const override;

  std::shared_ptr<const UniqueFd> close_elsewhere(UniqueFd fd);
  template <class Message>
  void answer(const protocol::MessageHeader& request, RequestResult<Message> outcome);
  template <class Message>
  void answer(const protocol::MessageHeader& request, SlicedResult<Message> slices);
  template <class Message>
  void answer(const protocol::MessageHeader& request, LaterResult<Message> begin);
  // Returns whether the next request may be handled now: its descriptors may be received, the descriptors of
  // its reply may be sent, no look of HeldFiles is needed, and a slot may be leased
  // (SlotLeases::is_behind()). Otherwise starts to wait and returns false. Once a request has waited for 5
  // seconds, returns true in any case.
  bool may_go_on(ConstBytes message, bool has_files);
  bool are_files_known(ConstBytes message, TimePoint since) const;
  void end_wait();
  void end_awaiting();
  // Does one step of the unfinished request and returns true. Returns false if no request is unfinished: only
  // then may the next message be handled.
  bool go_on();
  void send(ConstBytes message, std::span<const int> fds = {});
  void close();

  const Parts& parts_;
  Lessee client_;
  ClientSocket socket_;
  ClientEvents events_;
  bool greeted_ = false;
  bool broken_ = false;  // memory for a request, or a descriptor for its pidfd, was missing: disconnect
  bool closing_ = false;
  std::optional<protocol::MessageHeader> pending_hello_;
  std::function<bool()> going_on_;  // does one step of the unfinished request; returns false after the last
  // A wait until programs of the user receive the descriptors that they were sent, or theirs are closed.
  struct Wait {
    uint64_t ticket;
    TimePoint until;
    UserTimers::Id timer;
  };
  std::optional<Wait> wait_;
  // While the session awaits a LaterResult: the session itself, for the request's Answer. No message is
  // handled meanwhile, and the reply's descriptor counts as sent.
  std::shared_ptr<Session*> awaiting_;
  std::unique_ptr<CmClient> cm_;
};

}  // namespace verbena::agent
