// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_memory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/ordered_copy.h"
#include "adapter/net/udp/system_calls.h"
#include "adapter/queues/work_queue.h"
#include "adapter/shm/process_folder.h"
#include "base/cancellation_off.h"
#include "base/foreign_socket.h"
#include "base/format.h"
#include "base/log.h"
#include "base/paths/users.h"
#include "base/pidfd.h"
#include "base/sealed_file.h"
#include "base/socket_option.h"

namespace verbena::engine {
namespace {

constexpr size_t kBoardBytes = sizeof(shm::Board);
// Up to here /proc/PID/mem is faster, which copies twice.
constexpr uint64_t kMaxShort = 8192;
// Longer WRITEs are faster by packets, which both sides copy at once, where the memory is not mapped.
constexpr uint64_t kMaxWritten = 4096;

using Vectors = std::array<iovec, queues::kMaxSge + 1>;

// Behind `begin` of them that are there.
int fill(Vectors& vectors, size_t begin, std::span<const ConstBytes> pieces) {
  for (const ConstBytes piece : pieces) {
    vectors[begin++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  return static_cast<int>(begin);
}

// By syscall(2): no thread is cancelled here, as it holds the shard's lock.
ssize_t move_vectors(long call, int file, const Vectors& vectors, int count, uint64_t at) {
  return ::syscall(call, file, vectors.data(), static_cast<long>(count), static_cast<long>(at), 0L);
}

const shm::Board* map_board(int file, FileIdentity& identity) {
  struct stat found;
  if (!has_sealed_size(file, kBoardBytes) || ::fstat(file, &found) != 0) return nullptr;
  identity = {found.st_dev, found.st_ino};
  void* const at = ::mmap(nullptr, kBoardBytes, PROT_READ, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto* const board = static_cast<const shm::Board*>(at);
  if (shm::is_formatted(*board)) return board;
  ::munmap(at, kBoardBytes);
  return nullptr;
}

// The file system of memory files, which is the kernel's own.
std::optional<dev_t> device_of_memory_files() {
  const UniqueFd one(::memfd_create("verbena-probe", MFD_CLOEXEC));
  struct stat found {};
  if (!one || ::fstat(one.get(), &found) != 0) return std::nullopt;
  return found.st_dev;
}

// Waits for no kind of file: the number may be that of any. Errors: EACCES, the kernel does not let us look
// at the process; EPROTO, it is no memory file.
Result<UniqueFd> open_board(pid_t process, uint32_t descriptor) {
  const CancellationOff whole;
  const auto folder = ProcessFolder::open(process);
  if (!folder) return tl::unexpected(folder.error());
  const UniqueFd found = folder->open(verbena::format("fd/{}", descriptor).c_str(), O_PATH);
  if (!found) return fail(errno);
  struct statx seen {};
  const auto device = device_of_memory_files();
  const bool is_memory =
      device && ::statx(found.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &seen) == 0 &&
      S_ISREG(seen.stx_mode) && makedev(seen.stx_dev_major, seen.stx_dev_minor) == *device;
  if (!is_memory) return fail(EPROTO);
  UniqueFd board(::open(verbena::format("/proc/self/fd/{}", found.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!board) return fail(errno);
  return board;
}

union ControlBuffer {
  cmsghdr alignment;
  char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
};

template <class Value>
void put(cmsghdr* at, int type, const Value& value) {
  at->cmsg_level = SOL_SOCKET;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
}

}  // namespace

// ---- messages

void ask_for_credentials(int socket, bool on) {
  const int value = on ? 1 : 0;
  // With this option, a send on a nameless socket would search for a name. No other process has this end.
  if (on) bind_to_random_name(socket);
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &value, sizeof value);
}

namespace {

// 0: the kernel does not let us see it.
uint32_t pid_namespace_of(const char* process) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%s/ns/pid", process);
  struct stat status {};
  return ::stat(path.data(), &status) == 0 ? static_cast<uint32_t>(status.st_ino) : 0;
}

// Returns the number of pid namespaces, from that of /proc inward, in which the process has a pid. Unlike
// pid_namespace_of(), needs no right to trace the process, which may have more capabilities than we. 0: the
// kernel does not tell. Reads nothing of /proc/PID, because that can take a reference to the process's
// memory, which we would have to free if the process ended meanwhile.
size_t pid_namespaces_of(pid_t process) {
  const CancellationOff whole;
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  const std::string pids = pidfd ? pidfd_field(pidfd.get(), "NSpid") : std::string();
  discard(std::move(pidfd));  // its close may wait for locks that other processes have set on it
  return pids.empty() ? 0 : 1 + static_cast<size_t>(std::ranges::count(pids, '\t'));
}

}  // namespace

bool is_of_our_user(const std::optional<ucred>& sender) {
  return sender && sender->pid > 0 && sender->uid == ::getuid() && ::geteuid() == ::getuid() &&
         !paths::is_ambiguous(sender->uid);
}

bool is_in_our_pid_namespace(pid_t process) {
  const uint32_t ours = sight_of_processes();
  if (ours == 0) return false;
  if (const uint32_t its = pid_namespace_of(std::to_string(process).c_str()); its != 0) return its == ours;
  return pid_namespaces_of(::getpid()) == 1 && pid_namespaces_of(process) == 1;
}

uint32_t sight_of_processes() {
  return paths::is_ambiguous(::getuid()) ? 0 : pid_namespace_of("self");
}

// A user without a number in its user namespace has no credentials to show (EINVAL).
Result<void> send_with_credentials(int socket, ConstBytes message, std::optional<int> file) {
  iovec data{const_cast<std::byte*>(message.data()), message.size()};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  cmsghdr* at = CMSG_FIRSTHDR(&header);
  size_t used = 0;
  if (!paths::is_ambiguous(::getuid())) {
    put(at, SCM_CREDENTIALS, ucred{::getpid(), ::getuid(), ::getgid()});
    used += CMSG_SPACE(sizeof(ucred));
    at = CMSG_NXTHDR(&header, at);
  }
  if (file) {
    put(at, SCM_RIGHTS, *file);
    used += CMSG_SPACE(sizeof(int));
  }
  header.msg_controllen = used;
  for (;;) {
    if (net::system_calls::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return fail(errno);
  }
}

// ---- the memory

PeerMemory::Opened PeerMemory::open(const Presentation& said, int board_file, const ucred& sender,
                                    shm::Lane& lane) {
  using protocol::QpWay;
  const auto decline = [&](QpWay way, const char* why, int error) -> Opened {
    log_info("the memory of process {} is reached by packets only: {} ({})", sender.pid, why,
             std::strerror(error));  // NOLINT(concurrency-mt-unsafe): not in glibc
    return {nullptr, way};
  };
  // The kernel would let root go anywhere. What another user shows is looked at by nobody.
  if (!is_of_our_user(sender)) {
    return decline(QpWay::kOtherUser, "it is another user's, or not to be seen from here", EPERM);
  }
  UniqueFd opened;
  if (board_file < 0) {
    auto board = open_board(sender.pid, said.board - 1);
    if (!board) {
      const int error = board.error().code;
      const bool is_forbidden = error == EACCES || error == EPERM;
      return decline(is_forbidden ? QpWay::kForbidden : QpWay::kNotUsable, "its board cannot be opened",
                     error);
    }
    opened = std::move(*board);
    board_file = opened.get();
  }
  FileIdentity identity;
  const shm::Board* const board = map_board(board_file, identity);
  if (board == nullptr) return decline(QpWay::kNotUsable, "what it shows cannot be used", EPROTO);
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/mem", sender.pid);
  UniqueFd memory(::open(path.data(), O_RDWR | O_CLOEXEC));
  const int error = errno;
  std::unique_ptr<PeerMemory> made(
      new PeerMemory(board, identity, std::move(memory), sender.pid, said, lane));
  if (made->memory_) {
    if (!made->is_who_it_was()) return decline(QpWay::kNotUsable, "it is not what it says", ESRCH);
    return {std::move(made), QpWay::kAllReached};
  }
  if (!made->mapped_.can_look()) return decline(QpWay::kForbidden, "the kernel does not let us", error);
  log_info("of the memory of process {} only what is shared is reached: the kernel does not let us ({})",
           sender.pid, std::strerror(error));  // NOLINT(concurrency-mt-unsafe): not in glibc
  return {std::move(made), QpWay::kOnlyShared};
}

PeerMemory::PeerMemory(const shm::Board* board, const FileIdentity& board_file, UniqueFd memory,
                       pid_t process, const Presentation& said, shm::Lane& lane)
    : board_(board),
      accesses_(*board),
      memory_(std::move(memory)),
      process_(process),
      cookie_address_(said.cookie_address),
      lane_(lane),
      visits_(lane, lane.in_access.load(std::memory_order_relaxed)),
      mapped_(process, board_file) {
  std::memcpy(cookie_.bytes.data(), said.cookie, Cookie::kBytes);
}

PeerMemory::~PeerMemory() {
  ::munmap(const_cast<shm::Board*>(board_), kBoardBytes);
}

bool PeerMemory::is_who_it_was() const {
  Cookie found;
  const Vectors vectors{iovec{found.bytes.data(), Cookie::kBytes}};
  return move_vectors(SYS_preadv, memory_.get(), vectors, 1, cookie_address_) ==
             static_cast<ssize_t>(Cookie::kBytes) &&
         found.bytes == cookie_.bytes;
}

template <class Access>
bool PeerMemory::within_access(const shm::AccessRequest& request, Access access) {
  const bool done = visits_.run([&] {
    const auto found = accesses_.find(request);
    return found && access(*found);
  });
  mapped_.look(*board_);
  return done;
}

// access(here) is to answer whether it met no fault.
template <class Access>
bool PeerMemory::at_mapped(const shm::FoundAccess& found, uint64_t offset, uint64_t bytes, bool to_write,
                           Access access) {
  std::byte* const here = mapped_.find(found, offset + bytes, to_write);
  if (here == nullptr) return false;
  if (access(here + offset)) return true;
  mapped_.forget(found.rkey);
  return false;
}

bool PeerMemory::is_best_for(const transport::DirectAccess::Run& run) {
  if (is_mapped(run.rkey)) return true;
  return run.is_read && memory_ && run.length >= ReadWays::kLong &&
         read_ways_.leave_packets(run.bytes, MonotonicClock::now());
}

bool PeerMemory::is_mapped(uint32_t rkey) {
  const bool expected = mapped_.expects(rkey);
  mapped_.look(*board_);
  return expected;
}

bool PeerMemory::read(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
                      std::span<const ConstBytes> to) {
  const bool expected = mapped_.expects(request.rkey);
  if (!expected && !memory_) {
    mapped_.look(*board_);
    return false;
  }
  const bool is_long = !expected && request.bytes >= ReadWays::kLong;
  if (is_long && offset == 0 && !read_ways_.takes(request.bytes, MonotonicClock::now())) return false;
  return within_access(request, [&](const shm::FoundAccess& found) {
    const auto copy_from = [&](const std::byte* here) { return memory::scatter_guarded(to, here); };
    const bool done = (expected && at_mapped(found, offset, bytes, false, copy_from)) ||
                      (memory_ && (is_long ? copy_and_measure(found.at + offset, bytes, to)
                                           : copy(found.at + offset, bytes, to)));
    // Who was stopped in the midst of it, for longer than the other waits, has read what it may not.
    return done && accesses_.find(request) == found;
  });
}

bool PeerMemory::write(const shm::AccessRequest& request, uint64_t offset, uint64_t bytes,
                       std::span<const ConstBytes> from) {
  const bool expected = mapped_.expects(request.rkey);
  const bool is_short = memory_ && request.bytes <= kMaxWritten;
  if (!expected && !(is_short && is_asleep())) {
    mapped_.look(*board_);
    return false;
  }
  return within_access(request, [&](const shm::FoundAccess& found) {
    const auto copy_to = [&](std::byte* here) { return memory::copy_in_order_guarded(here, from); };
    if (expected && at_mapped(found, offset, bytes, true, copy_to)) return true;
    return is_short && is_asleep() && write_there(found.at + offset, bytes, from);
  });
}

// The owner's engine executes them by the same instructions (adapter/memory/guarded.h): so they are atomic
// towards each other, on every route.
std::optional<uint64_t> PeerMemory::change(const shm::AccessRequest& request,
                                           const transport::AtomicChange& change) {
  const bool expected = mapped_.expects(request.rkey);
  mapped_.look(*board_);
  if (!expected || request.address % sizeof(uint64_t) != 0) return std::nullopt;
  std::optional<uint64_t> before;
  within_access(request, [&](const shm::FoundAccess& found) {
    if (found.at % sizeof(uint64_t) != 0) return false;
    return at_mapped(found, 0, sizeof(uint64_t), true, [&](std::byte* here) {
      before = change.compares ? memory::compare_swap_guarded(here, change.compare, change.swap_add)
                               : memory::fetch_add_guarded(here, change.swap_add);
      return before.has_value();
    });
  });
  return before;
}

bool PeerMemory::copy(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to) {
  return bytes <= kMaxShort || !knows_by_number_ ? copy_short(at, bytes, to) : copy_long(at, bytes, to);
}

bool PeerMemory::copy_and_measure(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to) {
  const TimePoint from = MonotonicClock::now();
  if (!copy(at, bytes, to)) return false;
  read_ways_.copied(bytes, from, MonotonicClock::now());
  return true;
}

bool PeerMemory::copy_short(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to) const {
  Vectors vectors;
  const int count = fill(vectors, 0, to);
  return move_vectors(SYS_preadv, memory_.get(), vectors, count, at) == static_cast<ssize_t>(bytes);
}

bool PeerMemory::copy_long(uint64_t at, uint64_t bytes, std::span<const ConstBytes> to) {
  Cookie found;
  Vectors here;
  here[0] = {found.bytes.data(), Cookie::kBytes};
  const int count = fill(here, 1, to);
  const std::array<iovec, 2> there{iovec{reinterpret_cast<void*>(cookie_address_), Cookie::kBytes},
                                   iovec{reinterpret_cast<void*>(at), bytes}};
  const long moved = ::syscall(SYS_process_vm_readv, process_, here.data(), static_cast<long>(count),
                               there.data(), static_cast<long>(there.size()), 0L);
  if (moved < 0 && (errno == EPERM || errno == ENOSYS)) {  // as in some containers
    knows_by_number_ = false;
    return copy_short(at, bytes, to);
  }
  return moved == static_cast<long>(Cookie::kBytes + bytes) && found.bytes == cookie_.bytes;
}

// What is found there is what was lent if the QP is the same afterwards: its requests end no sooner.
bool PeerMemory::fetch(const transport::Connection& connection, std::span<const shm::LentPiece> from,
                       std::span<const ConstBytes> to) {
  if (!can_fetch()) return false;
  const auto found = shm::find_connected(*board_, connection);
  if (!found) return false;
  Cookie cookie;
  Vectors here, there;
  here[0] = {cookie.bytes.data(), Cookie::kBytes};
  there[0] = {reinterpret_cast<void*>(cookie_address_), Cookie::kBytes};
  size_t expected = Cookie::kBytes;
  size_t pieces = 1;
  for (const shm::LentPiece& piece : from) {
    there[pieces++] = {reinterpret_cast<void*>(piece.address), piece.bytes};
    expected += piece.bytes;
  }
  const int count = fill(here, 1, to);
  const long moved = ::syscall(SYS_process_vm_readv, process_, here.data(), static_cast<long>(count),
                               there.data(), static_cast<long>(pieces), 0L);
  if (moved < 0 && (errno == EPERM || errno == ENOSYS)) knows_by_number_ = false;
  if (moved != static_cast<long>(expected) || cookie.bytes != cookie_.bytes) return false;
  shm::LaneFormat::full_fence();
  return shm::find_connected(*board_, connection) == found;
}

bool PeerMemory::write_there(uint64_t at, uint64_t bytes, std::span<const ConstBytes> from) const {
  Vectors vectors;
  const int count = fill(vectors, 0, from);
  return move_vectors(SYS_pwritev, memory_.get(), vectors, count, at) == static_cast<ssize_t>(bytes);
}

}  // namespace verbena::engine
