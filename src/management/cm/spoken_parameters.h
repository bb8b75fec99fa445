// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control/protocol/connection_parameters.h"
#include "management/cm/messages.h"

namespace verbena::cm {

using protocol::ConnectionParameters;

// Connection parameters as the sender of a message says them and as its receiver takes them: the sender's
// initiator depth is the receiver's responder resources, and the other way round.

// Writes them into a message; into a REQ only what its transport uses. False if the private data has no room.
// REQUIRES: the transport of a REQ is set
bool say(const ConnectionParameters& parameters, Req& req);
// `from_xrc_target`: it sends nothing of its own and receives by SRQs; its QPN has a field of its own.
bool say(const ConnectionParameters& parameters, bool from_xrc_target, Rep& rep);
bool say(const ConnectionParameters& parameters, SidrReq& req);
bool say(const ConnectionParameters& parameters, SidrRep& rep);

// Private data is whole, with the zeros that end it.
ConnectionParameters heard_in(const Req& req);
ConnectionParameters heard_in(const Rep& rep, bool from_xrc_target);
ConnectionParameters heard_in(const Rej& rej);
ConnectionParameters heard_in(const SidrReq& req);
ConnectionParameters heard_in(const SidrRep& rep);
// Of a REQ or SIDR_REQ of the kernel's rdma_cm, whose private data begins with the IP addresses (annex A11):
// what comes after these.
ConnectionParameters without_ip_header(const ConnectionParameters& parameters);

}  // namespace verbena::cm
