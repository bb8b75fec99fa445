// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Whether a peer's request is wanted, and by which listener. Of the agent's thread.
class RequestAdmission {
 public:
  // REQUIRES: service outlives this
  explicit RequestAdmission(CmService& service) : service_(service) {}

  // The context of a request that is admitted is a CmIdentifier of its own, which belongs to the context
  // alone until the manager has a connection for it.
  cm::Admission admit(const cm::Req& req, const cm::Arrival& arrival);
  cm::Admission admit(const cm::SidrReq& req, const cm::Arrival& arrival);

 private:
  template <class Message>
  cm::Admission decide(const Message& message, const cm::Arrival& arrival);

  CmService& service_;
};

}  // namespace verbena::agent
