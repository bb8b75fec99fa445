// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Decides whether to accept a peer's request, and for which listener. For the agent's thread.
class RequestAdmission {
 public:
  // REQUIRES: service outlives this object
  explicit RequestAdmission(CmService& service) : service_(service) {}

  // The context of an admitted request is a new CmIdentifier. Only the context owns it until the manager has
  // a connection for it.
  cm::Admission admit(const cm::Req& req, const cm::Arrival& arrival);
  cm::Admission admit(const cm::SidrReq& req, const cm::Arrival& arrival);

 private:
  template <class Message>
  cm::Admission decide(const Message& message, const cm::Arrival& arrival);

  CmService& service_;
};

}  // namespace verbena::agent
