// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Locks an agent's state directory, so that no sweep removes it. An agent holds the returned descriptor while
// it runs; the kernel releases the lock even if the agent is killed. Locks a file in the directory that no
// other user can open, because any user that can read the directory could lock the directory itself. Returns
// an empty descriptor if another process has the lock or the file cannot be opened.
UniqueFd lock_state_directory(const std::string& directory);
// The same for a device mirror's directory.
UniqueFd lock_mirror_directory(const std::string& directory);

// Renames the directory, so that the next agent can use the name before the directory is removed. Removing
// may take seconds: with the mount option `discard`, a file system tells its disk of each removed file, and
// waits. Returns the new path, beside the old one, or nullopt if the rename fails.
std::optional<std::string> set_aside(const std::string& directory);

// Removes a file, or a directory with all its content, and returns true. Calls `is_over` before each file;
// once is_over() returns true, stops and returns false. A missing file is no error. Throws
// std::filesystem::filesystem_error.
bool remove_by_and_by(const std::string& path, const std::function<bool()>& is_over);

// Returns the inode numbers of the network namespaces of all visible processes.
std::set<uint64_t> living_network_namespaces();

// Removes what killed agents left in `home` (paths::state_home_for()). living() returns the network
// namespaces that processes are in.
//
// Removes three kinds of directories: those renamed by set_aside(), those of device mirrors, and those of
// network namespaces that living() does not return. If living() returns a directory's namespace, the
// directory stays for the next agent there. A directory also stays while an agent or mirror holds its lock,
// or an agent is about to start in it. Trace and log files of a namespace that living() does not return stay
// until they are an hour old: a named namespace can exist without a process.
//
// Stops once `is_over` returns true. Returns the number of removed entries of `home`.
size_t sweep_state_directories(const std::string& home, const std::function<std::set<uint64_t>()>& living,
                               const std::function<bool()>& is_over);

// Returns a thread that calls sweep_state_directories() once, after `delay`, so that clients do not wait. The
// thread's destructor stops the sweep, and waits until the removal of the current file is complete.
std::jthread sweep_later(std::string home, Duration delay);

}  // namespace verbena::agent
