// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Decides whether to accept a peer's REQ or SIDR_REQ, and for which listener. For the agent's thread.
class RequestAdmission {
 public:
  // REQUIRES: service outlives this object
  explicit RequestAdmission(CmService& service) : service_(service) {}

  // The context of an admitted request is a pointer to a new CmIdentifier. Nothing else owns that identifier
  // until PeerEvents adds it to the listener's client.
  cm::Admission admit(const cm::Req& req, const cm::Arrival& arrival);
  cm::Admission admit(const cm::SidrReq& req, const cm::Arrival& arrival);

 private:
  template <class Message>
  cm::Admission decide(const Message& message, const cm::Arrival& arrival);

  CmService& service_;
};

}  // namespace verbena::agent
