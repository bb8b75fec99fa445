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
// ptrace the sender. The message does not carry the file itself: every process of the user could use the
// file, even one with fewer privileges, which may not ptrace the sender.
struct Presentation {
  uint32_t magic;
  uint32_t version;  // of the channel's layout
  uint32_t type;     // which message it is (LocalLine)
  // The sender's descriptor number of the board, plus one; 0 if it shows no board. Older libraries send the
  // board's file itself; then this field means nothing.
  uint32_t board;
  uint64_t cookie_address;
  std::byte cookie[Cookie::kBytes];
};
static_assert(sizeof(Presentation) == 40);

// Makes the kernel add the sender's credentials to each message that this socket receives, or not.
void ask_for_credentials(int socket, bool on);
// Returns whether, according to the kernel, the sender is a process of our user that we can see: it has a pid
// in our pid namespace. Returns false if this process has another effective user ID than its real one.
bool is_of_our_user(const std::optional<ucred>& sender);

// Returns whether the process is in our pid namespace, according to the kernel. Only such a process of our
// user shares memory with us and is shown our keys. The claim of a process itself does not count: a process
// in a container could claim to be here. Returns false if /proc shows nothing of the process.
bool is_in_our_pid_namespace(pid_t process);
// Returns the number (inode) of the pid namespace whose processes we see. Two processes that get the same
// number see each other. Returns 0 if we see no processes, because there is no /proc of that namespace, or
// because our user has no number in our user namespace.
uint32_t sight_of_processes();
// Sends one message with our credentials, and with a file if given. Does not block. Errors: EAGAIN: the
// socket is full; others of sendmsg(2).
Result<void> send_with_credentials(int socket, ConstBytes message, std::optional<int> file = std::nullopt);

// The memory of another process, as far as its export table (board) allows. The process itself is not
// trusted. The kernel says who it is, and whether we may read and write it (as for ptrace). Its board can
// only lead to its own memory.
//
// The memory is reached in three ways:
// - Shared memory is mapped in this process, too (mapped_regions.h), and accessed directly.
// - Other memory is accessed by a descriptor of /proc/PID/mem. The descriptor belongs to the program that
//   runs there now: after exec() or exit it reaches nothing. It also writes pages that became read-only after
//   they were registered, as an adapter writes pinned pages.
// - Long READs go by process_vm_readv(2), which is faster. It names the process by its pid, which may belong
//   to another process by then. So the same call also reads the cookie (own_board.h), which no other program
//   has at that address.
//
// The kernel may forbid the last two ways, which need a debugger's rights. The first needs only the right to
// open the shared files.
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
  // `lane`: the lane that we write to that process. By a word in it, the process can forbid further accesses
  // (visit.h).
  static Opened open(const Presentation& said, int board_file, const ucred& sender, shm::Lane& lane);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // These functions work as in transport::DirectAccess. `request` covers the whole range of the operation;
  // `offset` and `bytes` are the part of the range that this call copies.
  bool is_best_for(const transport::DirectAccess::Run& run);
  bool is_mapped(uint32_t rkey);
  bool read(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
            std::span<const ConstBytes> to);
  bool write(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
             std::span<const ConstBytes> from);
  std::optional<uint64_t> change(const shm::AccessRequest& request, const transport::AtomicChange& change);

  // Returns whether payloads can be fetched from this memory (rendezvous). This may become false at any time,
  // when the kernel has refused a fetch.
  bool can_fetch() const { return memory_ && knows_by_number_; }
  // Fetches the payload of a rendezvous, which a QP of the process has left in the process's memory. Returns
  // false if the QP has been changed meanwhile, the memory is not there, or the kernel refuses. Then a part
  // of `to` may have been written.
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
