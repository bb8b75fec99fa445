// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

inline constexpr uid_t kNobody = static_cast<uid_t>(-1);

// One slot as it goes into the vault (descriptors borrowed) and comes out of it.
struct SlotRecord {
  uint32_t index = 0;
  bool lent = false;
  uid_t uid = kNobody;         // the user it is or was lent to
  uid_t socket_uid = kNobody;  // who may have a copy of the socket: that one, or nobody
  pid_t pid = 0;
  uint64_t start_time = 0;  // of the process: tells it from a later one of the same pid
  std::string program;
  int socket = -1;
  int page = -1;
  int courier_end = -1;  // what comes to the socket is handed over by it
  int process = -1;      // a pidfd; -1: an older agent wrote the vault, or the kernel gave none
};

// Where the agent's descriptors survive the agent. They lie, in flight, in a Unix socket pair; every client
// of the agent's own user holds a copy of the end where they come out. When the agent is killed, all its
// sockets stay open, so that their order in the SO_REUSEPORT group (which is the slots' steering) does not
// change, and the next agent gets everything from the first of these clients that says hello.
//
// The vault is a log: each put() appends what changed; from time to time it is written again in full, and
// then the old part is taken out, so that at no moment anything is missing.
class TakeoverState {
 public:
  struct Contents {
    UniqueFd links;                 // the last link file; may be empty
    UniqueFd ledger;                // cm/ledger.h; may be empty
    std::optional<uid_t> only;      // the only user who was served
    std::vector<SlotRecord> slots;  // by index; their descriptors are owned by `fds`
    std::vector<UniqueFd> fds;
  };

  static Result<TakeoverState> create();

  // The end to give to clients.
  int client_end() const { return out_.get(); }

  Result<void> put_slot(const SlotRecord& slot);
  Result<void> put_links(int link_file);
  Result<void> put_ledger(int ledger);
  // So many messages lie in it that it should be written again in full.
  bool is_long() const { return messages_ > kLong; }
  // What there is beside slots; -1: no such file.
  struct Rest {
    int link_file = -1;
    int ledger = -1;
    std::optional<uid_t> only = std::nullopt;
  };
  Result<void> rewrite(std::span<const SlotRecord> slots, const Rest& rest);

  // Empties what a client of an agent that died has handed over. What does not look like a vault's content is
  // ignored.
  static Contents take(int client_end);
  // The same, but takes nothing out. Only one process may look at a time.
  static Contents look(int client_end);

 private:
  // A message costs about a kilobyte of the socket's send buffer, of which 200 are there by default.
  static constexpr size_t kLong = 64;

  template <class Receive>
  static Contents read(int client_end, Receive receive);
  Result<void> put(std::span<const SlotRecord> slots);
  Result<void> put_file(uint32_t what, int file);
  Result<void> put_only(uid_t user);

  UniqueFd in_;
  UniqueFd out_;
  size_t messages_ = 0;
};

}  // namespace verbena::agent
