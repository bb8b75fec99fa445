// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <sys/types.h>

namespace verbena::paths {

// Builds a path in a fixed buffer, without allocation and without the C++ run-time library. Becomes invalid
// when text does not fit, and stays invalid until clear().
class PathText {
 public:
  PathText() { text_[0] = '\0'; }
  explicit PathText(std::string_view text) : PathText() { add(text); }

  PathText& add(std::string_view text) {
    if (text.size() >= sizeof text_ - size_) {
      valid_ = false;
    } else if (!text.empty()) {
      std::memcpy(text_ + size_, text.data(), text.size());
      shorten(size_ + text.size());
    }
    return *this;
  }

  PathText& add_number(unsigned long long number) {
    char digits[20];
    size_t first = sizeof digits;
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return add({digits + first, sizeof digits - first});
  }

  // Sets the length of the path. REQUIRES: size <= view().size(), or the caller wrote that many characters
  // into data()
  void shorten(size_t size) {
    size_ = size;
    text_[size] = '\0';
  }

  void invalidate() { valid_ = false; }
  void clear() {
    valid_ = true;
    shorten(0);
  }
  bool valid() const { return valid_; }
  const char* c_str() const { return text_; }
  char* data() { return text_; }
  static constexpr size_t capacity() { return PATH_MAX - 1; }
  std::string_view view() const { return {text_, size_}; }

 private:
  bool valid_ = true;
  size_t size_ = 0;
  char text_[PATH_MAX];
};

// Finds the directories of base/paths/state_directory.h without allocation and without the C++ library: for
// the preload library, which is loaded into every program. Async-signal-safe.

// `owner` is always a user ID as base/paths/users.h defines it: 0, or own_user().

// Returns the directory that holds the state directories of `owner`'s agents, one for each network namespace:
// /run/verbena for root. Unless /tmp/verbena-UID is a directory of `owner`, returns the directory of `owner`
// that has this name and a drawn suffix, if there is one; of several, the first by name. Searches take a
// tenth of the time at most, and look at 65,536 names in /tmp. So a directory that another process has just
// created, or one among more names, may be missed.
PathText state_home_for(uid_t owner);

// Appends a hyphen and sixteen hexadecimal digits: the time in units of 16 us and four drawn digits. An agent
// whose directory's name is taken by another user creates a directory so: nobody else can guess its name. The
// next state_home_for() searches at once. Returns false if the kernel has no random bits.
inline constexpr size_t kDrawnSuffix = 17;  // characters
bool add_drawn_suffix(PathText& home);

// Returns the state directory of `owner`'s agent in this network namespace. Invalid if the network namespace
// is unknown (no /proc).
PathText state_path_for(uid_t owner);

// Returns the socket file of `owner`'s agent in the network namespace of the calling thread, which may differ
// from the process's. Invalid if the state directory does not exist, or others than `owner` can write to it.
PathText agent_socket_path(uid_t owner);

// Whether `path` is a directory of `owner` in which nobody else can create files. A symbolic link is no
// directory here.
bool is_private_directory(const char* path, uid_t owner);

// Whether `path` is a directory in which only its owner can create files, and the owner is root or this user.
bool is_trusted_directory(const char* path);

// The suffix of a mirror's directory name.
inline constexpr std::string_view kMirrorSuffix = "-mirror";

// The file that an agent or mirror keeps locked in its directory while it lives; anybody can query the lock.
inline constexpr const char* kInUse = "/in_use";

// Selects the state directory. Order: root's living agent, which serves everyone; our own living agent;
// root's living mirror; our own living mirror; a stale directory of an agent. Invalid if there is none.
// `chosen`: the value of VERBENA_SYS_DIR, or nullptr if it is not set. A set value is returned if it is the
// absolute path of a directory; otherwise the result is invalid.
PathText find_state_path(const char* chosen);

// The kind of process that maintains the directory of find_state_path(nullptr). kNobody if there is no
// directory, or it is stale.
enum class ShownBy { kNobody, kAgent, kMirror };
ShownBy state_is_shown_by();

}  // namespace verbena::paths
