// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control/protocol/connection_parameters.h"
#include "management/cm/messages.h"

namespace verbena::cm {

using protocol::ConnectionParameters;

// Translates connection parameters between the sender's and the receiver's view: the sender's initiator depth
// is the receiver's responder resources, and vice versa.

// Write parameters into a message. False if the private data is too long. A REQ gets only the fields that its
// transport uses. REQUIRES: the transport of a REQ is set
bool say(const ConnectionParameters& parameters, Req& req);
// `from_xrc_target`: it sends no requests and receives by SRQs; its QPN has a field of its own.
bool say(const ConnectionParameters& parameters, bool from_xrc_target, Rep& rep);
bool say(const ConnectionParameters& parameters, SidrReq& req);
bool say(const ConnectionParameters& parameters, SidrRep& rep);

// Read parameters from a message. Private data has full length, including its padding of zeros.
ConnectionParameters heard_in(const Req& req);
ConnectionParameters heard_in(const Rep& rep, bool from_xrc_target);
ConnectionParameters heard_in(const Rej& rej);
ConnectionParameters heard_in(const SidrReq& req);
ConnectionParameters heard_in(const SidrRep& rep);
// Removes the IP addresses (annex A11) with which the kernel's rdma_cm begins the private data of a REQ or
// SIDR_REQ.
ConnectionParameters without_ip_header(const ConnectionParameters& parameters);

}  // namespace verbena::cm
