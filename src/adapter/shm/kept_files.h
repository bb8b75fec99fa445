// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <sys/types.h>

#include "base/quota.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// Counts the files of channels that processes of other users have or had. This process has made the files'
// memory, so it counts in the control group of this process. The other process may keep a descriptor or a
// mapping for as long as it likes. So a user who keeps many files gets no further ones. The processes of that
// user are reached by the wire then.
//
// The kernel reports by inotify(7) when nobody has a file any more. A process can keep pages without their
// file, too: in pipes (vmsplice(2)), whose number has no limit of its own. Nothing reports that. So a file
// counts for another hour, and all other users together can keep at most 48 halves' pages more per hour. A
// user whose processes have used up their share within an hour is reached by the wire, too.
//
// Thread-safe. Never blocks.

// The quota of these files. Root and this process's own user have a reserve, and a single other user gets two
// thirds of the rest (base/quota.h).
inline constexpr Quota::Size kKeptFiles{.all = 96, .reserve = 48};
// The time for which a file still counts when nobody has it any more.
inline constexpr Duration kCountedAfterwards = std::chrono::hours(1);

// Returns whether a process of the user may get a file with a channel's memory.
bool may_give_file(uid_t user, TimePoint now = MonotonicClock::now());
// Closes the file of a channel that has ended, and counts it as the user's until kCountedAfterwards after no
// other process has it. If the kernel cannot report that, because there is no /proc or no inotify instance is
// left, the file counts for good. REQUIRES: no other open file refers to the memory
void close_given_file(UniqueFd file, uid_t user);
// Returns the number of files that others still have, of all users. Gives the inotify instance back if there
// are none.
size_t kept_files();

}  // namespace verbena::engine
