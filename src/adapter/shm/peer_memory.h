// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <sys/socket.h>

#include "adapter/shm/board.h"
#include "adapter/shm/layout.h"
#include "adapter/shm/mapped_regions.h"
#include "adapter/shm/own_board.h"
#include "adapter/shm/read_ways.h"
#include "adapter/shm/visit.h"
#include "adapter/transport/route.h"
#include "base/bytes.h"
#include "base/own_fd.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// A message by which a process tells another where its export table (board) is. The kernel adds the sender's
// credentials. The receiver opens the board in /proc/PID/fd, where the kernel admits only processes that may
// ptrace the sender. A file sent along would reach every process of the user, less privileged ones too.
struct Presentation {
  uint32_t magic;
  uint32_t version;  // of the channel's layout
  uint32_t type;     // which message it is (LocalLine)
  // The sender's descriptor of the board, plus one; 0: it shows none. Older libraries send the file itself;
  // then this has no meaning.
  uint32_t board;
  uint64_t cookie_address;
  std::byte cookie[Cookie::kBytes];
};
static_assert(sizeof(Presentation) == 40);

// Makes the kernel add the sender's credentials to each message that this socket receives, or not.
void ask_for_credentials(int socket, bool on);
// Returns whether the kernel says that the sender is a process of our user, and we can see it: it has a pid
// here.
bool is_of_our_user(const std::optional<ucred>& sender);

// Returns whether the process is in our pid namespace, as the kernel shows it. A process in a container may
// only claim so, to be shown our keys, which must not leave this namespace.
bool is_in_our_pid_namespace(pid_t process);
// Returns the number (inode) of the pid namespace whose processes we see. Two processes that get the same
// number see each other. 0: we see none, as there is no /proc of that namespace, or as our user has no number
// in our user namespace.
uint32_t sight_of_processes();
// Sends one message with our credentials, and with a file if given. Does not block. Errors: EAGAIN: the
// socket is full; others of sendmsg(2).
Result<void> send_with_credentials(int socket, ConstBytes message, std::optional<int> file = std::nullopt);

// The memory of another process, as far as its export table (board) allows. The process itself is not
// trusted. The kernel says who it is, and whether we may read and write it (as for ptrace). Its board can
// only lead to its own memory.
//
// The memory is reached in three ways:
// - Memory that is shared anyway is mapped here as well (mapped_regions.h), and accessed directly.
// - Other memory is accessed by a descriptor of /proc/PID/mem. The descriptor belongs to the program that
//   runs there now: after exec() or exit it reaches nothing. It also writes pages that became read-only after
//   they were registered, as an adapter writes pinned pages.
// - Long READs go by process_vm_readv(2), which is faster. It names the process by its pid, so the same call
//   also reads the cookie, which no other program has at that address.
//
// The kernel may forbid the last two, which need a debugger's rights. The first needs only the right to open
// the files.
//
// For the shard's lock holder.
class PeerMemory {
 public:
  struct Opened {
    std::unique_ptr<PeerMemory> memory;
    protocol::QpWay way;
  };
  // Opens the memory of the process that sent `said`. If it cannot be reached, Opened::memory is null and
  // Opened::way says why. Then everything goes by packets, and the caller does not try again.
  // `board_file`: the file of its board; negative: the board is opened by said.board.
  // `lane`: our lane to that process, where it can forbid further accesses (visit.h).
  static Opened open(const Presentation& said, int board_file, const ucred& sender, shm::Lane& lane);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // See transport::DirectAccess. `request` covers the whole range; `offset` and `bytes` are the part for this
  // call.
  bool is_best_for(const transport::DirectAccess::Run& run);
  bool is_mapped(uint32_t rkey);
  bool read(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
            std::span<const ConstBytes> to);
  bool write(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
             std::span<const ConstBytes> from);
  std::optional<uint64_t> change(const shm::AccessRequest& request, const transport::AtomicChange& change);

  // Returns whether payloads can be fetched from this memory (rendezvous). The kernel may refuse at any time;
  // then this becomes false.
  bool can_fetch() const { return memory_ && knows_by_number_; }
  // Fetches a payload that a QP of the process has left in its memory (rendezvous). Returns false if the QP
  // has been changed meanwhile, the memory is not there, or the kernel refuses. Then `to` may have been
  // written.
  bool fetch(const transport::Connection& connection, std::span<const shm::LentPiece> from,
             std::span<const ConstBytes> to);

  // Returns whether some of the memory is mapped. If so, the caller calls drop_unused_mappings() now and
  // then.
  bool has_mappings() const { return !mapped_.empty(); }
  void drop_unused_mappings() { mapped_.drop_unused(); }

 private:
  PeerMemory(const shm::Board* board, const FileIdentity& board_file, UniqueFd memory, pid_t process,
             const Presentation& said, shm::Lane& lane);
  bool is_who_it_was() const;
  bool is_asleep() const { return lane_.reader_sleeps.load(std::memory_order_relaxed) != 0; }
  bool copy(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to);
  bool copy_and_measure(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to);
  bool copy_short(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to) const;
  bool copy_long(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to);
  bool write_there(uint64_t at, uint64_t bytes, std::span<const ConstBytes> from) const;
  template <class Access>
  bool within_access(const shm::AccessRequest& request, Access access);
  template <class Access>
  bool at_mapped(const shm::FoundAccess& found, uint64_t offset, uint64_t bytes, bool to_write,
                 Access access);

  const shm::Board* const board_;
  shm::AccessFinder accesses_;
  bool knows_by_number_ = true;  // process_vm_readv(2) has not been refused
  const OwnFd memory_;           // /proc/PID/mem; none: the kernel does not let us
  const pid_t process_;
  const uint64_t cookie_address_;
  Cookie cookie_;
  shm::Lane& lane_;
  shm::Visits visits_;
  MappedRegions mapped_;
  ReadWays read_ways_;
};

}  // namespace verbena::engine
