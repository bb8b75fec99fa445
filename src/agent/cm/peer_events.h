// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/cm/identifier.h"
#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Turns messages of peers and timeouts into events for programs: the events that the kernel's rdma_cm makes
// of the same messages, with the same status. Also records the messages in the trace of the connection's
// client. For the agent's thread.
class PeerEvents final : public cm::Handler, public cm::Observer {
 public:
  // REQUIRES: service outlives this object
  explicit PeerEvents(CmService& service) : service_(service) {}

  // The context of an admitted request is a pointer to a new CmIdentifier. Nothing else owns that identifier
  // until on_request() or on_sidr_request() adds it to the listener's client.
  cm::Admission admit(const cm::Req& req, const cm::Arrival& arrival) override;
  cm::Admission admit(const cm::SidrReq& req, const cm::Arrival& arrival) override;
  Return may_return(uint32_t qpn, const cm::Arrival& arrival) override;
  void on_request(cm::LocalId id, uint64_t context, const cm::Req& req, const cm::Arrival& arrival) override;
  void on_reply(cm::LocalId id, uint64_t context, const cm::Rep& rep) override;
  void on_ready(cm::LocalId id, uint64_t context, const cm::Rtu& rtu) override;
  void on_rejected(cm::LocalId id, uint64_t context, const cm::Rej& rej) override;
  void on_unreachable(cm::LocalId id, uint64_t context, cm::MessageType unanswered) override;
  void on_delay(cm::LocalId, uint64_t, const cm::Mra&) override {}
  void on_disconnect_request(cm::LocalId id, uint64_t context, const cm::Dreq& dreq) override;
  void on_disconnected(cm::LocalId id, uint64_t context, const cm::Drep* drep) override;
  void on_time_wait_exit(cm::LocalId id, uint64_t context) override;
  void on_sidr_request(cm::LocalId id, uint64_t context, const cm::SidrReq& req,
                       const cm::Arrival& arrival) override;
  void on_sidr_reply(cm::LocalId id, uint64_t context, const cm::SidrRep& rep) override;

  // cm::Observer
  void on_sent(const cm::ConnectionInfo& connection, const cm::Passage& passage) override;
  void on_received(const cm::ConnectionInfo& connection, const cm::Passage& passage) override;

 private:
  // Decides whether to accept a peer's REQ or SIDR_REQ, and for which listener.
  template <class Message>
  cm::Admission decide(const Message& message, const cm::Arrival& arrival);
  static void take_in(cm::LocalId connection, uint64_t context,
                      const protocol::ConnectionParameters& parameters, cm::MessageType request);
  static void end_connection(CmIdentifier& id, int status);

  CmService& service_;
};

}  // namespace verbena::agent
