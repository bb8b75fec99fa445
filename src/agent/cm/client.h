// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "agent/cm/client_parts.h"
#include "agent/cm/client_requests.h"
#include "agent/cm/connection_trace.h"
#include "agent/cm/identifier.h"
#include "agent/cm/port_space.h"
#include "agent/cm/service.h"
#include "agent/sessions/client_files.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Handles connection management for one client. Passes each request of control/protocol/connection_messages.h
// to ClientRequests and sends the reply. Also sends the client events about its identifiers. Trusts nothing
// in requests. After the client has gone, GoneClients destroys its identifiers (cm/cleanup.h). For the
// agent's thread.
class CmClient : public PortOwner {
 public:
  using Host = CmClientHost;

  CmClient(CmService& service, Host& host);
  ~CmClient();

  // Carries out a request by `Method`, a method of ClientRequests, and replies. Records the call in the
  // trace, unless `Call` is kNone. If the method takes an identifier, it gets the client's identifier with
  // the number in the request. If there is none, the reply is ENOENT. Work that takes long is only begun;
  // is_busy() is then true. REQUIRES: `message` has the request's length, and is_busy() is false
  template <auto Method, protocol::TraceCall Call = protocol::TraceCall::kNone>
  void carry_out(const protocol::MessageHeader& header, ConstBytes message, ClientFile descriptor = {});
  // Returns whether a request is unfinished. The caller then calls go_on() until is_busy() is false.
  bool is_busy() const { return unfinished_.has_value(); }
  // Does the next step of the unfinished request, and replies after the last step. REQUIRES: is_busy()
  void go_on();

  uid_t user() const { return user_; }
  // REQUIRES: go() was not called
  const Host& host() const { return host_; }

  const std::shared_ptr<ConnectionTrace>& trace() const { return trace_; }

  // Marks the program as ended. From now on the client gets no messages, is missing from
  // CmService::clients(), and its ports count as free. The CmClientHost may be destroyed afterwards. Called
  // by GoneClients.
  void go();
  // Destroys up to `most` identifiers, channels and queued events. Returns their number, which is less than
  // `most` if none are left. REQUIRES: go() was called
  size_t clear(size_t most);

  // ---- for the service, which reports events of peers

  // Returns whether the listener's backlog and the client's limits of identifiers and events allow another
  // request. At the limit of identifiers, first destroys identifiers of the user's ended programs. REQUIRES:
  // the identifier is listening
  bool has_room(CmIdentifier& listener);
  // Adds the identifier of an incoming request and sends CONNECT_REQUEST. REQUIRES: id->number is the
  // listener's number, which is replaced
  // @param request the message type of the request, for the trace
  void add_request(std::unique_ptr<CmIdentifier> id, const protocol::ConnectionParameters& parameters,
                   cm::MessageType request);
  // Sends an event about the identifier to the program, unless the identifier is_unanswered.
  void emit(CmIdentifier& id, int type, int status = 0,
            const protocol::ConnectionParameters* parameters = nullptr);
  // Sends DEVICE_REMOVAL for identifiers whose device is gone, and ADDR_CHANGE for those on `failed_over`
  // devices. REQUIRES: the service's links are up to date
  // @param failed_over device indexes of bonds that have switched to another port
  void links_changed(std::span<const uint32_t> failed_over);

  const ClientIdentifiers::Map& identifiers() const { return identifiers_.all(); }
  // Updates the counts of the client, its user and the service (CmTally). Called after an identifier was
  // added or its listening or resolving state has changed, and (`is_there` false) before its destruction.
  void recount(CmIdentifier& id, bool is_there = true);

  uint64_t listed_number = 0;  // set by CmService: key of this client in CmService::clients()

 private:
  // Carries out a request that needs no more preparation.
  template <auto Method, protocol::TraceCall Call, class Message>
  void finish(const protocol::MessageHeader& header, const Message& request, ClientFile descriptor);
  // Records a call of the program. Skips accept() on the active side, because the library makes that call,
  // not the program. The trace has the RTU message that the call sends.
  template <class Message>
  void trace_call(protocol::TraceCall call, const CmIdentifier& id, const Message& request);
  // Sends the reply with the outcome, and then the event in the outcome, if any.
  template <class Result>
  void answer(const protocol::MessageHeader& header, const control::AdminResult<Result>& outcome);
  template <class Reply>
  void reply(const Reply& message) {
    host_.send_reply(protocol::bytes_of(message));
  }
  void send(const protocol::CmEvent& event);

  void count(size_t CmTally::*what, bool& is_counted, bool is_to_count);
  void remove_device(CmIdentifier& id);

  CmService& service_;
  Host& host_;
  const uid_t user_;
  const std::shared_ptr<ConnectionTrace> trace_;
  CmTally tally_;
  // Does one step of work that would take too long in one piece. Returns false after the last step.
  using Preparation = std::function<bool()>;
  Preparation preparation_of(const protocol::MessageHeader& header, ConstBytes message);
  Preparation close_little_by_little(uint32_t channel);
  Preparation drop_events_of(uint32_t id);
  Preparation move_events_of(uint32_t id, uint32_t channel);
  // A request that is carried out by `finish` once `prepare` has returned false.
  struct Unfinished {
    Preparation prepare;
    std::function<void()> finish;
  };
  std::optional<Unfinished> unfinished_;
  ClientLimits limits_;
  ClientChannels channels_;
  ClientIdentifiers identifiers_;
  ClientRequests requests_;
};

template <auto Method, protocol::TraceCall Call>
void CmClient::carry_out(const protocol::MessageHeader& header, ConstBytes message, ClientFile descriptor) {
  const auto request = protocol::read_as<typename RequestMethod<decltype(Method)>::Message>(message);
  if (Preparation prepare = preparation_of(header, message); prepare && prepare()) {
    unfinished_ = {std::move(prepare),
                   [this, header, request] { finish<Method, Call>(header, request, {}); }};
  } else {
    finish<Method, Call>(header, request, std::move(descriptor));
  }
  service_.settle();
}

template <auto Method, protocol::TraceCall Call, class Message>
void CmClient::finish(const protocol::MessageHeader& header, const Message& request,
                      [[maybe_unused]] ClientFile descriptor) {
  using Traits = RequestMethod<decltype(Method)>;
  if constexpr (Traits::kTakesDescriptor) {
    answer(header, (requests_.*Method)(request, std::move(descriptor)));
  } else if constexpr (!Traits::kTakesIdentifier) {
    answer(header, (requests_.*Method)(request));
  } else {
    CmIdentifier* const id = identifiers_.find(request.id);
    if (id == nullptr) return host_.send_error(header, ENOENT, "no such identifier");
    if constexpr (Call != protocol::TraceCall::kNone) trace_call(Call, *id, request);
    const auto outcome = (requests_.*Method)(*id, request);
    if (Call != protocol::TraceCall::kNone && !outcome) trace_->refused(*id, Call, outcome.error().code);
    answer(header, outcome);
  }
}

template <class Message>
void CmClient::trace_call(protocol::TraceCall call, const CmIdentifier& id, const Message& request) {
  if (call == protocol::TraceCall::kAccept && id.is_active) return;
  const protocol::CmAddress* to = nullptr;
  if constexpr (requires { request.destination; }) to = &request.destination;
  if constexpr (requires { request.group; }) to = &request.group;
  const auto info = service_.manager().info(id.connection);
  uint32_t qpn = info ? info->local_qpn : 0;
  if constexpr (requires { request.parameters; }) qpn = request.parameters.qpn;
  trace_->called(id, call, qpn, to);
}

template <class Result>
void CmClient::answer(const protocol::MessageHeader& header, const control::AdminResult<Result>& outcome) {
  if (!outcome) return host_.send_error(header, outcome.error().code, outcome.error().text);
  const protocol::MessageHeader head = protocol::reply_header(header);
  if constexpr (std::is_same_v<Result, protocol::CmRoute>) {
    reply(protocol::CmAddressReply{head, *outcome});
  } else if constexpr (std::is_same_v<Result, DoneWithRoute>) {
    reply(protocol::CmAddressReply{head, outcome->route});
  } else if constexpr (std::is_same_v<Result, Destroyed>) {
    reply(protocol::CmDestroyReply{head, outcome->events, 0});
  } else {
    reply(protocol::PlainReply{head});
  }
  if constexpr (requires { outcome->event; }) {
    if (outcome->event) send(*outcome->event);
  }
}

}  // namespace verbena::agent
