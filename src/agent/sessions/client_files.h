// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/types.h>

#include "agent/event_loop.h"
#include "base/format.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Closes descriptors that users' processes have sent to the agent or have copies of. A close may take as long
// as the descriptor's maker likes (base/foreign_socket.h). So each user has a closing thread of its own, and
// no user waits for another. A thread starts when there is something to close, and ends after the last close.
// The close of a lingering socket (SO_LINGER) is interrupted within 20 ms. A file whose server does not
// answer blocks its user's thread, with all later descriptors of that user.
//
// Also reads files that users' processes can write to, on the same thread. A read waits for the locks of the
// file's pages, and the processes can hold these for seconds (madvise(2), fallocate(2)). So the agent's
// thread never reads such a file.
//
// Also opens sockets for which the kernel may make the caller wait for a lock (open()). Another thread of the
// user does that, so the wait delays neither closes nor reads.
//
// The agent's own ends of sockets are shut down on other threads of the user. A shutdown may take long,
// because it wakes all epoll(7) watches of the other end, and a user may make any number of watches. But a
// shutdown never blocks. If the socket still contains descriptors that were sent to the agent, it is passed
// on to the closing thread. The user gets one shutdown thread for each kPerThread waiting sockets, up to
// kMaxThreads. Making a socket's watches takes longer than waking them. So a user can outpace the shutdown
// threads only with more processors than there are threads.
//
// All descriptors that clients have sent count in their users' shares (base/quota.h) until they are closed:
// those that the agent keeps (ClientFile), and those that wait here. The ends of sockets that the agent makes
// for a user and must close here count, too. They count from the moment they are made, because later the
// agent must close them, however many wait for a slow closing thread.
//
// For the agent's thread. Never blocks.
class ForeignCloser {
 public:
  // is_behind() is true if at least kMaxOfUser descriptors of the user wait and none was closed for
  // kPatience. Then the agent accepts no more clients of that user.
  static constexpr size_t kMaxOfUser = 256;
  static constexpr Duration kPatience = std::chrono::seconds(1);
  static constexpr size_t kPerThread = 32;
  static constexpr size_t kMaxThreads = 8;
  // Returns the number of threads that shut down as many waiting sockets. REQUIRES: `waiting` is not 0
  static constexpr size_t threads_for(size_t waiting) {
    return std::min(1 + (waiting - 1) / kPerThread, kMaxThreads);
  }
  // Returns the quota of clients' descriptors for an agent that may open `descriptors`. It has room for all
  // descriptors of event channels and XRC domains (descriptors_test.cc), and for a 32nd of `descriptors`
  // more.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(descriptors / 4 + descriptors / 16 + descriptors / 32);
  }

  // Returns the quota of descriptors that are refused, for an agent that may open `descriptors`.
  static constexpr Quota::Size refused_with(size_t descriptors) { return Quota::Size::of(descriptors / 64); }

  explicit ForeignCloser(Quota::Size files = room_with(1 << 16), uid_t own = 0,
                         Quota::Size refused = refused_with(1 << 16));
  // Does not wait for the threads, which finish their queued work.
  ~ForeignCloser() = default;
  ForeignCloser(const ForeignCloser&) = delete;
  ForeignCloser& operator=(const ForeignCloser&) = delete;

  // Returns whether the agent may take `more` descriptors from a client of the user.
  bool allows(uid_t user, size_t more = 1) const { return files_->allows(user, more); }
  // Counts descriptors as the user's until the share is destroyed.
  QuotaShare count(uid_t user, size_t descriptors = 1) { return take_share(files_, user, descriptors); }
  // Returns whether the agent may receive a descriptor from a client of the user, if only to refuse it with
  // an error, or send one and then close its own copy. Beyond allows(), such descriptors have a quota of
  // their own, because without them the agent would have to end the session.
  bool may_receive(uid_t user) const { return allows(user) || refused_->allows(user); }
  // Counts a received or sent descriptor: as the user's if allows() returns true, and else as a refused one.
  QuotaShare count_received(uid_t user) { return take_share(allows(user) ? files_ : refused_, user); }
  // Closes the descriptor on the user's thread. Destroys `share`, in which it counts, when it is closed.
  void close(uid_t user, UniqueFd fd, QuotaShare share);
  // Like close() above, for a descriptor that does not count yet. It counts from now on.
  void close(uid_t user, UniqueFd fd) { close(user, std::move(fd), count(user)); }
  // Returns a descriptor that several owners can share, or a null pointer if `fd` is empty. When the last
  // owner has released it, it is closed as by close(), or directly if this object no longer exists. It counts
  // in `share` until it is closed. If `share` is empty, it counts only from its release by the last owner on.
  std::shared_ptr<const UniqueFd> share(uid_t user, UniqueFd fd, QuotaShare share = {});
  // Work with a file. Runs on the user's closing thread, so it must not use objects of the agent's thread.
  // Skipped if there is no memory for it.
  using FileWork = std::function<void(int file)>;
  // A task that follows the work. Runs on the agent's thread, in a turn of the user.
  using Task = std::function<void()>;
  // Makes the user's thread do `work` with the file, and then close the file like close(). Then runs the task
  // `then`, even if the work was left undone.
  void work_and_close(uid_t user, UniqueFd file, QuotaShare share, FileWork work, Task then);
  // Like work_and_close(), but with a copy of the descriptor `file`. Fails with EMFILE if the user may have
  // no more descriptors or the agent has none left.
  Result<void> work_with(uid_t user, int file, FileWork work, Task then);
  // Makes the user's opening thread do work without a file, after its earlier work for the user. Then runs
  // the task `then`, even if the work was left undone for lack of memory or a thread. The work must not use
  // objects of the agent's thread.
  void work_for(uid_t user, std::function<void()> work, Task then);
  // A descriptor of share().
  using SharedFd = std::shared_ptr<const UniqueFd>;
  // Opens a file. Runs on the user's opening thread, so it must not use objects of the agent's thread.
  using Open = std::function<Result<UniqueFd>()>;
  // Takes the opened file or the error. Runs on the agent's thread, in a turn of the user.
  using Opened = std::function<void(Result<SharedFd>)>;
  // Makes the user's opening thread call `open`, like work_for(). Then passes the result to `then`: ENOMEM
  // without memory or a thread. The file counts as the user's from now on until it is closed, as by share().
  // An empty descriptor becomes a null pointer.
  void open(uid_t user, Open open, Opened then);
  // Binds a nameless Unix socket to a random name on the user's thread, because bind(2) can wait. Then
  // closes the descriptor like close().
  void name_and_close(uid_t user, UniqueFd socket);
  // Shuts the agent's end of a socket down and then closes it. If messages with descriptors are left in the
  // socket, passes it to close() instead. Destroys `until_empty` once the socket is shut down and the
  // messages before the first one with descriptors are removed.
  void shut_down_and_close(uid_t user, UniqueFd socket, QuotaShare share, QuotaShare until_empty = {});
  // Returns a descriptor that is readable when take_closed() has something to return.
  int fd() const;
  // A closed descriptor. The caller destroys the share and carries out the task; both may be empty.
  struct Done {
    uid_t user;
    QuotaShare share;
    Task task;
  };
  std::vector<Done> take_closed();
  // Returns the number of the user's descriptors that are not closed yet. A descriptor that moves from one
  // thread to another counts twice for a moment.
  size_t waiting(uid_t user) const;
  // Returns whether the user's descriptors are closed too slowly (kMaxOfUser).
  bool is_behind(uid_t user) const;

 private:
  struct Closed;
  struct Item;
  struct Work;
  // The threads of a user. Their work is created with the first descriptor.
  struct Threads {
    std::shared_ptr<Work> closing;
    std::shared_ptr<Work> shutting_down;  // passes descriptors on to `closing`
    std::shared_ptr<Work> opening;        // has no descriptors
  };
  Threads& threads_of(uid_t user);
  static void enqueue(const std::shared_ptr<Work>& work, Item item);
  static void* run(void* work);
  void forget_idle();

  const std::shared_ptr<Quota> files_;
  const std::shared_ptr<Quota> refused_;
  const std::shared_ptr<Closed> closed_;
  std::map<uid_t, Threads> users_;
  const std::shared_ptr<ForeignCloser*> self_ = std::make_shared<ForeignCloser*>(this);  // for share()
};

// Owns a descriptor that a client has sent, of any kind. The destructor passes it to a ForeignCloser. Callers
// may only use system calls that block for no kind of file (base/foreign_socket.h).
class ClientFile {
 public:
  ClientFile() = default;
  // REQUIRES: the closer outlives this object
  ClientFile(UniqueFd fd, uid_t user, ForeignCloser& closer)
      : ClientFile(std::move(fd), user, closer, fd ? closer.count(user) : QuotaShare()) {}
  // As above. The descriptor counts in `share`.
  ClientFile(UniqueFd fd, uid_t user, ForeignCloser& closer, QuotaShare share)
      : share_(std::move(share)), fd_(std::move(fd)), user_(user), closer_(&closer) {}
  ClientFile(ClientFile&&) = default;
  ClientFile& operator=(ClientFile&& other) noexcept {
    std::swap(share_, other.share_);
    std::swap(fd_, other.fd_);
    std::swap(user_, other.user_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~ClientFile() {
    if (fd_) closer_->close(user_, std::move(fd_), std::move(share_));
  }

  int get() const { return fd_.get(); }
  // Makes the closer's thread of this user bind a nameless Unix socket to a random name. Returns before that
  // is done, and does not tell if it fails. The name prevents a long send(2): if the client sets SO_PASSCRED,
  // the kernel must find a free name for a nameless socket (base/socket_option.h). Errors: the kernel's, if
  // the agent has no descriptor for a copy.
  Result<void> name_socket() const;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  // Makes the user's closing thread do the work with the file and then close the file, like
  // ForeignCloser::work_and_close(). REQUIRES: there is a file
  void work_and_close(ForeignCloser::FileWork work, ForeignCloser::Task then) {
    closer_->work_and_close(user_, std::move(fd_), std::move(share_), std::move(work), std::move(then));
  }
  // Releases the descriptor, which the caller may then close. REQUIRES: it comes from a trusted user, or it
  // is known to be of a kind whose close() does not block
  UniqueFd take_trusted() {
    share_.reset();
    return std::move(fd_);
  }

 private:
  QuotaShare share_;
  UniqueFd fd_;
  uid_t user_ = 0;
  ForeignCloser* closer_ = nullptr;
};

// Returns a new, read-only descriptor of the file that `fd` refers to, for clients that must not write to it,
// for example to another process's status page. Returns an empty descriptor and sets errno on failure.
inline UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

// Counts the memory of files that were made for clients: lists, traces, long messages. A file uses the
// agent's memory while any process has it open or mapped, or leaves it in a socket. Users get shares of the
// memory (base/quota.h).
//
// The kernel tells whether any process has a file open: it grants a write lease (fcntl(2), F_SETLEASE) only
// on a file that is not open elsewhere. The lease ignores the descriptor from memfd_create(). Requesting a
// lease may take long: fcntl(2) takes a lock that any reader of a long /proc/locks holds. So the thread of
// the files' user requests the leases (a "look"), once a second and when a request needs to know
// (is_known()).
//
// For the agent's thread.
class HeldFiles {
 public:
  // Memory counts in blocks. All users together may hold 32 MiB. Only root and the agent's own user may take
  // the reserve (base/quota.h). The reserve has room for one list of maximum length, because other users can
  // make a list long.
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr size_t kLargest = 9 << 20;  // bytes of the longest list
  static constexpr Quota::Size kBlocks{.all = 512, .reserve = kLargest / kBlockBytes};
  // Returns the quota of blocks for an agent that may open `descriptors` descriptors. Each file takes a
  // descriptor and counts as one block at least.
  static constexpr Quota::Size room_with(size_t descriptors) {
    const size_t all = std::min(kBlocks.all, descriptors / 16);
    return {.all = all, .reserve = std::min(kBlocks.reserve, all / 2)};
  }

  // REQUIRES: the loop and the closer outlive this object, and so do the closer's tasks
  HeldFiles(EventLoop& loop, ForeignCloser& closer, uid_t own, Quota::Size blocks = kBlocks);

  // Returns whether the user's programs may hold `bytes` more.
  bool allows(uid_t user, size_t bytes) const { return blocks_.allows(user, blocks_of(bytes)); }
  // Makes a memfd for a client, and returns a new, read-only descriptor of it. The file counts as `bytes` for
  // the user until no process has it open, and for about a second more. `make` returns Result<UniqueFd>, a
  // file that no other process has yet. `session` is the session for holds(), or 0. Fails with EDQUOT if the
  // user's programs hold too much, or EAGAIN if a retry may succeed.
  template <class Make>
  Result<UniqueFd> lease(uid_t user, size_t bytes, const Make& make, uint64_t session = 0) {
    if (!allows(user, bytes)) return refuse(user);
    const auto made = make();
    if (!made) return fail(made.error().code);
    return hold(user, made->get(), bytes, session);
  }
  // Returns whether a file of this session (see lease()) was still open in any process at the last look.
  // False for session 0.
  bool holds(uint64_t session) const;
  // Returns whether a request for a file, which came at `since`, can be answered without another look. True
  // if the user's programs hold no file, or may hold another one of maximum length while the session holds
  // none. Also true if a look that began at `since` or later has ended. Otherwise begins a look and returns
  // false.
  bool is_known(uid_t user, uint64_t session, TimePoint since);
  // Returns the number of blocks that count for the user.
  size_t held_by(uid_t user) const { return blocks_.of(user); }
  // Makes the user's thread look for files that no process has open. These files stop counting once the
  // result has reached the agent's thread.
  void begin_look(uid_t user);

 private:
  struct Held {
    uid_t user;
    uint64_t session;
    size_t blocks;
    std::shared_ptr<const UniqueFd> file;
  };
  // A file that a look examines.
  struct Looked {
    ino_t inode;
    std::shared_ptr<const UniqueFd> file;
    bool is_closed;
  };
  // The looks at a user's files.
  struct Looks {
    bool is_under_way = false;
    TimePoint begun{};
    TimePoint last{};  // when the latest finished look began
  };
  using Files = std::map<ino_t, Held>;  // by inode number: all files are in one file system

  static size_t blocks_of(size_t bytes) {
    return std::max<size_t>(1, (bytes + kBlockBytes - 1) / kBlockBytes);
  }
  tl::unexpected<Error> refuse(uid_t user);
  Result<UniqueFd> hold(uid_t user, int file, size_t bytes, uint64_t session);
  void end_look(uid_t user, const std::vector<Looked>& looked);
  void begin_looks();

  ForeignCloser& closer_;
  Quota blocks_;
  Files files_;
  std::map<uid_t, Looks> looks_;  // of users who hold files
  DeadlineTimer next_look_;
};

}  // namespace verbena::agent
