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

// A process tells another where it is; with it comes the kernel's word on who says so. The other opens the
// board in /proc/PID/fd, where the kernel admits only processes that may look at this one as a debugger does.
// A file sent along would reach every process of the user, less privileged ones too.
struct Presentation {
  uint32_t magic;
  uint32_t version;  // of the channel's layout
  uint32_t type;     // which message it is (LocalLine)
  // Its descriptor and one; 0: none. Older libraries send the file itself, and then it means nothing.
  uint32_t board;
  uint64_t cookie_address;
  std::byte cookie[Cookie::kBytes];
};
static_assert(sizeof(Presentation) == 40);

// Makes the socket say of each message that comes who has sent it, or not.
void ask_for_credentials(int socket, bool on);
// Whether the kernel says that it is a process of our user, which can be seen from here.
bool is_of_our_user(const std::optional<ucred>& sender);

// Whether the kernel lets us see that. A process in a container may say that it sees the same processes as
// we, to be shown our keys, which are to stay outside.
bool is_in_our_pid_namespace(pid_t process);
// The number of the pid namespace whose processes we see. Two processes that say the same number see each
// other. 0: we see none, as there is no /proc of that namespace, or as our user has no number here.
uint32_t sight_of_processes();
// One message, with a file if so wanted, now or not at all (EAGAIN). Says who we are.
Result<void> send_with_credentials(int socket, ConstBytes message, std::optional<int> file = std::nullopt);

// The memory of another process, as far as its board allows. The process is never taken at its word: the
// kernel says who it is, and whether we may read and write it (as a debugger may); and what its board says
// leads nowhere but into its own memory.
//
// The memory is reached in three ways. Memory that is shared already is mapped here as well
// (mapped_regions.h), and read and written as our own. All other: by a descriptor of /proc/PID/mem, which is
// bound to the program that runs there now: after exec() or its end it reaches nothing. Everything else that
// writes goes by it. And by process_vm_readv(2), which names a process by its number, and is faster for what
// is long: in the same call the cookie is read, which no other program has there. (By the descriptor, pages
// are written also if they were made read-only since they were registered, as an adapter writes what it has
// pinned.)
//
// The kernel may forbid the latter two, which are a debugger's, and not the first, which is for who may open
// the same files.
//
// For the shard's lock holder.
class PeerMemory {
 public:
  struct Opened {
    std::unique_ptr<PeerMemory> memory;
    protocol::QpWay way;
  };
  // No memory, and why: it cannot be reached. Then everything goes by packets, and it is not tried again.
  // `board_file`: where it is negative, the board is opened by its number. `lane`: to the other process; it
  // says there whether we may come at all.
  static Opened open(const Presentation& said, int board_file, const ucred& sender, shm::Lane& lane);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // See transport::DirectAccess. `request` is for all of the range.
  bool is_best_for(const transport::DirectAccess::Run& run);
  bool is_mapped(uint32_t rkey);
  bool read(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
            std::span<const ConstBytes> to);
  bool write(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
             std::span<const ConstBytes> from);
  std::optional<uint64_t> change(const shm::AccessRequest& request, const transport::AtomicChange& change);

  // Whether what its process lends is fetched; the kernel may refuse at any time.
  bool can_fetch() const { return memory_ && knows_by_number_; }
  // Fetches what a QP of the process has lent. False: the QP has been changed, or there is no such memory.
  bool fetch(const transport::Connection& connection, std::span<const shm::LentPiece> from,
             std::span<const ConstBytes> to);

  // Some of it is mapped. It is to be asked now and then to drop what is not used any more.
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
  bool knows_by_number_ = true;  // process_vm_readv() has not been refused
  const OwnFd memory_;           // none: the kernel does not let us
  const pid_t process_;
  const uint64_t cookie_address_;
  Cookie cookie_;
  shm::Lane& lane_;
  shm::Visits visits_;
  MappedRegions mapped_;
  ReadWays read_ways_;
};

}  // namespace verbena::engine
