// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::agent {

// Runs the agent's second process, and returns its exit status. A root agent that serves other users has one.
// Other users must not get the takeover state, which holds all sockets. If they were the only clients and the
// agent were killed, its sockets would be closed. The second process is an ordinary client of root's that
// only holds the takeover state. It sends the state to the next agent, and starts that agent unless a
// service manager does.
//
// While the agent is stopped, the second process forwards packets in its place (stopped_agent.h).
int stand_by();

}  // namespace verbena::agent
