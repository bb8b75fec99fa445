// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

// The two processes beside an agent, which run the same program and are clients of the agent.
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

// Runs this process as a mirror: shows an agent's devices to programs that cannot see the agent's state
// directory, in a directory of the mirror's own. These programs run in another container of the agent's pod.
// They share the agent's network namespace and connect to its abstract Unix socket, but have another file
// system.
//
// A program that does not find the devices starts the mirror (control::show_devices_here()). Programs of the
// mirror's user trust the mirror like an agent of their user. The mirror ends when its agent has ended
// without a successor, when the agent's own directory becomes visible here, or when the signalfd `signals` is
// readable.
//
// Closes `ready` once the directory is complete. Returns the exit status: 0 at the end and if the devices are
// shown already, 1 if no agent runs, if another mirror holds the directory's lock for 8 seconds, or after
// another error.
int mirror_devices(UniqueFd ready, const UniqueFd& signals);

}  // namespace verbena::agent
