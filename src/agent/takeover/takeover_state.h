// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

inline constexpr uid_t kNobody = static_cast<uid_t>(-1);

// A slot as the takeover state records it. The record does not own its descriptors. The agent that writes a
// record owns them. After reading, Contents::fds owns them.
struct SlotRecord {
  uint32_t index = 0;
  bool leased = false;
  uid_t uid = kNobody;         // the user that holds the slot, or held it last
  uid_t socket_uid = kNobody;  // the user that may have a copy of the socket: `uid` or kNobody
  pid_t pid = 0;
  uint64_t start_time = 0;  // of the process, from an older agent that recorded no pidfd; else 0
  std::string program;
  int socket = -1;
  int page = -1;
  int forwarder_end = -1;  // the forwarder's end of the pair, or -1 if packets are not forwarded
  int process = -1;        // a pidfd, or -1 if an older agent wrote the record or the kernel gave none
};

// Preserves the agent's descriptors and leases if the agent is killed, as unread messages in a Unix socket
// pair. Every client of the agent's own user, such as the standby, holds a copy of the pair's receiving end.
// So the UDP sockets in the messages stay open when the agent is killed. Their order in the SO_REUSEPORT
// group, which steers packets to slots, does not change. When such a client connects to the next agent, it
// sends the receiving end along, and that agent reads all messages.
//
// The takeover state is a log: each put_…() appends a change. From time to time rewrite() appends the
// complete state, then removes the old messages, so that the log is complete at any moment.
class TakeoverState {
 public:
  struct Contents {
    UniqueFd links;                 // the latest link file; may be empty
    UniqueFd ledger;                // cm/ledger.h; may be empty
    std::optional<uid_t> only;      // the only user that the agent served besides root, if restricted
    std::vector<SlotRecord> slots;  // by index; their descriptors are owned by `fds`
    std::vector<UniqueFd> fds;
  };

  static Result<TakeoverState> create();

  // Returns the receiving end of the socket pair. The agent sends a copy of it to each client of its own
  // user.
  int client_end() const { return out_.get(); }

  Result<void> put_slot(const SlotRecord& slot) { return put({&slot, 1}); }
  Result<void> put_links(int link_file) { return put_file(kBringsLinks, link_file); }
  Result<void> put_ledger(int ledger) { return put_file(kBringsLedger, ledger); }
  // Returns whether the log has more than 64 messages. The caller should then call rewrite().
  bool is_long() const { return messages_ > kLong; }
  // The state other than the slots. A descriptor is -1 if there is no such file.
  struct Rest {
    int link_file = -1;
    int ledger = -1;
    std::optional<uid_t> only = std::nullopt;
  };
  // Appends the state, then removes all older messages, and with them their descriptors. The kernel closes
  // descriptors in a removed message without waiting for file locks, unlike close(2). If the state cannot be
  // appended, the older messages are kept. REQUIRES: another descriptor of each file in an older message is
  // open, unless this call may wait for the last close of that file
  Result<void> rewrite(std::span<const SlotRecord> slots, const Rest& rest);

  // Reads and removes all messages from the receiving end that a killed agent's client has sent. Ignores
  // malformed messages. Returns empty Contents if there are none.
  static Contents take(int client_end);
  // Like take(), but leaves the messages in the socket. REQUIRES: no other process calls look() meanwhile
  static Contents look(int client_end);

 private:
  // Number of messages above which is_long() is true. A message costs about a kilobyte of the socket's send
  // buffer, whose default size is about 200 kB.
  static constexpr size_t kLong = 64;

  template <class Receive>
  static Contents read(int client_end, Receive receive);
  Result<void> put(std::span<const SlotRecord> slots);
  // Each value stands in a message's header in place of the number of slots, and says which file the message
  // brings. The value for the ledger is larger than any number of slots, so that releases without a ledger
  // ignore the message.
  static constexpr uint32_t kBringsLinks = 0, kBringsLedger = 0x10000;
  Result<void> put_file(uint32_t what, int file);
  Result<void> put_all(std::span<const SlotRecord> slots, const Rest& rest);
  Result<void> send(ConstBytes message, std::span<const int> fds = {});

  UniqueFd in_;
  UniqueFd out_;
  size_t messages_ = 0;
};

}  // namespace verbena::agent
