// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::agent {

// Runs this process as the standby, which keeps a root agent's takeover state while the agent serves other
// users. Returns the exit status: 0 after a minute without an agent, 1 if it cannot connect to one.
//
// Clients keep the takeover state for the next agent, but other users must not get it, since it holds all
// sockets. If other users were the only clients and the agent were killed, the sockets would be closed. The
// standby is an ordinary client of root's, which gets the state. It sends the state to the next agent, and
// starts that agent unless a service manager does (NOTIFY_SOCKET is set).
//
// While the agent is stopped, the standby forwards packets in its place (StoppedAgent).
int stand_by();

}  // namespace verbena::agent
