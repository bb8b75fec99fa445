// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control/protocol/connection_parameters.h"
#include "management/cm/messages.h"

namespace verbena::cm {

using protocol::ConnectionParameters;

// Translates connection parameters between the sender's and the receiver's view: the sender's initiator depth
// is the receiver's responder resources, and vice versa.

// Write parameters into a message. Return false if the private data is too long. A REQ gets only the fields
// that its transport uses. REQUIRES: the transport of a REQ is set
bool say(const ConnectionParameters& parameters, Req& req);
// `from_xrc_target`: the sender's QP is an XRC target, which sends no requests and receives by SRQs. Its QPN
// goes into the EECN field (local_eecn).
bool say(const ConnectionParameters& parameters, bool from_xrc_target, Rep& rep);
bool say(const ConnectionParameters& parameters, SidrReq& req);
bool say(const ConnectionParameters& parameters, SidrRep& rep);

// Read the parameters in a message. The private data has the field's full length, including padding zeros.
// `from_xrc_target` as in say().
ConnectionParameters heard_in(const Req& req);
ConnectionParameters heard_in(const Rep& rep, bool from_xrc_target);
ConnectionParameters heard_in(const Rej& rej);
ConnectionParameters heard_in(const SidrReq& req);
ConnectionParameters heard_in(const SidrRep& rep);
// Returns the parameters without the first 36 bytes of private data: the header with IP addresses (annex A11)
// with which the kernel's rdma_cm begins a REQ or SIDR_REQ. Does not check that the bytes are such a header.
ConnectionParameters without_ip_header(const ConnectionParameters& parameters);

}  // namespace verbena::cm
