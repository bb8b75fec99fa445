// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::agent {

// The keeper is a second process of a root agent that serves other users. Those must not have the vault (it
// holds everybody's sockets), so when they are the agent's only clients, nobody would keep its sockets if it
// were killed. The keeper is a client like any other, of root, that does nothing but that: it holds the
// vault, and brings it to the next agent, which it starts unless a service manager does.
//
// While the agent is stopped, this process forwards packets in its place (stopped_agent.h).
// The keeper's whole life; the exit status.
int keep_vault();

}  // namespace verbena::agent
