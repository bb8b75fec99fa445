// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_files.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/detached_thread.h"
#include "base/foreign_socket.h"
#include "base/socket_option.h"

namespace verbena::agent {

namespace {

constexpr size_t kStack = 256 << 10;
constexpr int kNudge = SIGUSR2;
constexpr long kNudgeInterval = 20'000'000;  // nanoseconds
// From this number of users on, those without waiting descriptors are dropped.
constexpr size_t kManyUsers = 64;

// Sends its thread a signal every 20 ms. The signal interrupts a close() that waits for a lingering socket;
// the kernel then completes the close.
class Nudge {
 public:
  Nudge() {
    sigset_t nudge;
    sigemptyset(&nudge);
    sigaddset(&nudge, kNudge);
    ::pthread_sigmask(SIG_UNBLOCK, &nudge, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kNudge;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec when{{0, kNudgeInterval}, {0, kNudgeInterval}};
    if (made_) ::timer_settime(timer_, 0, &when, nullptr);
  }
  ~Nudge() {
    if (made_) ::timer_delete(timer_);
  }
  Nudge(const Nudge&) = delete;
  Nudge& operator=(const Nudge&) = delete;

 private:
  timer_t timer_{};
  bool made_ = false;
};

constexpr Duration kLookInterval = std::chrono::seconds(1);

// REQUIRES: the file is open for reading only
bool is_open_elsewhere(int file) {
  if (::fcntl(file, F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  ::fcntl(file, F_SETLEASE, F_UNLCK);
  return false;
}

}  // namespace

// Closed descriptors, on their way from all users' threads to the agent's.
struct ForeignCloser::Closed {
  std::mutex mutex;
  std::vector<Done> done;  // under the mutex
  const UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void add(Done closed) {
    if (!closed.share && !closed.task) return;
    {
      const std::lock_guard lock(mutex);
      done.push_back(std::move(closed));
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
  }
};

struct ForeignCloser::Item {
  UniqueFd fd;
  QuotaShare share;
  QuotaShare until_empty = {};
  bool must_bind = false;
  FileWork work = {};
  Task then = {};
};

struct ForeignCloser::Work {
  Work(uid_t whose, std::shared_ptr<Closed> all, std::shared_ptr<Work> after, bool opens = false)
      : user(whose),
        closed(std::move(all)),
        closing(std::move(after)),
        is_nudged(!opens),
        max_threads(closing ? kMaxThreads : 1) {}

  // Returns the next descriptor. Returns nullopt if there is none: then the calling thread must end.
  std::optional<Item> take();
  void finish(Item& item) const;
  void close(Item& item) const;
  void shut_down(Item& item) const;

  const uid_t user;
  const std::shared_ptr<Closed> closed;
  const std::shared_ptr<Work> closing;  // null if this is the thread that closes or opens
  const bool is_nudged;                 // false for the thread that opens: nothing there may be interrupted
  // Descriptors of a kind that can block are closed by one thread, so a user blocks one.
  const size_t max_threads;
  std::mutex mutex;
  std::deque<Item> next;  // under the mutex
  size_t threads = 0;     // under the mutex: number of threads that run
  std::atomic<size_t> waiting = 0;
  std::atomic<TimePoint> progress{};  // time of the last close, or of the first queued descriptor
};

std::optional<ForeignCloser::Item> ForeignCloser::Work::take() {
  const std::lock_guard lock(mutex);
  if (next.empty()) {
    --threads;
    return std::nullopt;
  }
  std::optional<Item> item(std::move(next.front()));
  next.pop_front();
  return item;
}

void ForeignCloser::Work::finish(Item& item) const {
  closing ? shut_down(item) : close(item);
}

void ForeignCloser::Work::close(Item& item) const {
  if (item.must_bind) {
    while (!bind_to_random_name(item.fd.get()) && errno == EINTR) {
    }
  }
  if (item.work) survive_lack_of_memory([&] { item.work(item.fd.get()); });
  item.fd.reset();
  closed->add({user, std::move(item.share), std::move(item.then)});
}

void ForeignCloser::Work::shut_down(Item& item) const {
  ForeignSocket socket(std::move(item.fd));
  socket.clear_some(SIZE_MAX);
  item.fd = socket.part();
  closed->add({user, std::move(item.until_empty), {}});
  if (item.fd) return enqueue(closing, std::move(item));
  closed->add({user, std::move(item.share), {}});
}

ForeignCloser::ForeignCloser(Quota::Size files, uid_t own, Quota::Size refused)
    : files_(std::make_shared<Quota>(files, own)),
      refused_(std::make_shared<Quota>(refused, own)),
      closed_(std::make_shared<Closed>()) {
  if (!closed_->event) throw std::system_error(errno, std::generic_category(), "eventfd");
  struct sigaction nudged {};
  nudged.sa_handler = [](int) {};
  ::sigaction(kNudge, &nudged, nullptr);
}

void* ForeignCloser::run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Work>> owned(static_cast<std::shared_ptr<Work>*>(argument));
  Work& work = **owned;
  ::pthread_setname_np(::pthread_self(), "verbena-closer");
  std::optional<Nudge> nudge;
  if (work.is_nudged) nudge.emplace();
  while (auto item = work.take()) {
    work.finish(*item);
    item.reset();
    --work.waiting;
    work.progress = MonotonicClock::now();
  }
  return nullptr;
}

void ForeignCloser::close(uid_t user, UniqueFd fd, QuotaShare share) {
  if (fd) enqueue(threads_of(user).closing, {std::move(fd), std::move(share)});
}

std::shared_ptr<const UniqueFd> ForeignCloser::share(uid_t user, UniqueFd fd, QuotaShare share) {
  if (!fd) return nullptr;
  const auto close_last = [self = std::weak_ptr(self_), user, share = std::move(share)](UniqueFd* last) {
    const std::unique_ptr<UniqueFd> owned(last);
    const auto closer = self.lock();
    if (closer) (*closer)->close(user, std::move(*owned), share ? share : (*closer)->count(user));
  };
  return {new UniqueFd(std::move(fd)), close_last};
}

void ForeignCloser::work_and_close(uid_t user, UniqueFd file, QuotaShare share, FileWork work, Task then) {
  enqueue(
      threads_of(user).closing,
      {.fd = std::move(file), .share = std::move(share), .work = std::move(work), .then = std::move(then)});
}

Result<void> ForeignCloser::work_with(uid_t user, int file, FileWork work, Task then) {
  if (!allows(user)) return fail(EMFILE);
  UniqueFd copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail(errno);
  work_and_close(user, std::move(copy), count(user), std::move(work), std::move(then));
  return {};
}

void ForeignCloser::work_for(uid_t user, std::function<void()> work, Task then) {
  Item item;
  item.work = [work = std::move(work)](int) { work(); };
  item.then = std::move(then);
  enqueue(threads_of(user).opening, std::move(item));
}

// Only the agent's thread destroys the share, with `then`.
void ForeignCloser::open(uid_t user, Open open, Opened then) {
  const auto opened = std::make_shared<Result<UniqueFd>>(fail(ENOMEM));
  auto take = [this, user, opened, share = count(user), then = std::move(then)] {
    if (!*opened) return then(fail(opened->error().code));
    then(this->share(user, std::move(**opened), share));
  };
  work_for(
      user, [opened, open = std::move(open)] { *opened = open(); }, std::move(take));
}

void ForeignCloser::name_and_close(uid_t user, UniqueFd socket) {
  enqueue(threads_of(user).closing, {std::move(socket), count(user), {}, true});
}

void ForeignCloser::shut_down_and_close(uid_t user, UniqueFd socket, QuotaShare share,
                                        QuotaShare until_empty) {
  enqueue(threads_of(user).shutting_down, {std::move(socket), std::move(share), std::move(until_empty)});
}

Result<void> ClientFile::name_socket() const {
  UniqueFd copy(::fcntl(get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail(errno);
  closer_->name_and_close(user_, std::move(copy));
  return {};
}

ForeignCloser::Threads& ForeignCloser::threads_of(uid_t user) {
  forget_idle();
  Threads& threads = users_[user];
  if (!threads.closing) threads.closing = std::make_shared<Work>(user, closed_, nullptr);
  if (!threads.shutting_down) threads.shutting_down = std::make_shared<Work>(user, closed_, threads.closing);
  if (!threads.opening) threads.opening = std::make_shared<Work>(user, closed_, nullptr, true);
  return threads;
}

void ForeignCloser::enqueue(const std::shared_ptr<Work>& work, Item item) {
  std::unique_ptr<std::shared_ptr<Work>> argument;
  {
    const std::lock_guard lock(work->mutex);
    if (work->waiting == 0) work->progress = MonotonicClock::now();
    work->next.push_back(std::move(item));
    ++work->waiting;
    if (work->threads >= std::min(work->max_threads, threads_for(work->next.size()))) return;
    argument = std::make_unique<std::shared_ptr<Work>>(work);
    ++work->threads;
  }
  if (start_detached_thread(run, argument.get(), kStack)) {
    argument.release();  // owned by the thread now
  } else {
    const ActingFor acting(work->user);
    log_warning("no thread can be started: what user {} has sent stays open for now", work->user);
    std::optional<Item> unopened;
    {
      const std::lock_guard lock(work->mutex);
      --work->threads;  // the next call tries again
      // Nothing is lost if a file is not opened, and its owner need not wait for the next call.
      if (!work->next.empty() && !work->next.back().fd) {
        unopened = std::move(work->next.back());
        work->next.pop_back();
        --work->waiting;
      }
    }
    if (unopened) work->closed->add({work->user, std::move(unopened->share), std::move(unopened->then)});
  }
}

int ForeignCloser::fd() const {
  return closed_->event.get();
}

std::vector<ForeignCloser::Done> ForeignCloser::take_closed() {
  uint64_t events = 0;
  if (::read(closed_->event.get(), &events, sizeof events) < 0) return {};
  const std::lock_guard lock(closed_->mutex);
  return std::exchange(closed_->done, {});
}

size_t ForeignCloser::waiting(uid_t user) const {
  const auto found = users_.find(user);
  if (found == users_.end()) return 0;
  // In this order, so that one that is passed on meanwhile is not missed.
  const size_t shutting_down = found->second.shutting_down->waiting.load();
  return shutting_down + found->second.closing->waiting.load();
}

bool ForeignCloser::is_behind(uid_t user) const {
  const auto found = users_.find(user);
  if (found == users_.end()) return false;
  const Work& closing = *found->second.closing;
  return closing.waiting >= kMaxOfUser && MonotonicClock::now() - closing.progress.load() > kPatience;
}

void ForeignCloser::forget_idle() {
  if (users_.size() < kManyUsers) return;
  std::erase_if(users_, [](const auto& entry) {
    const Threads& threads = entry.second;
    return threads.shutting_down->waiting == 0 && threads.closing->waiting == 0 &&
           threads.opening->waiting == 0;
  });
}

// Ignores SIGIO, which the kernel sends if a process opens a file during a lease.
HeldFiles::HeldFiles(EventLoop& loop, ForeignCloser& closer, uid_t own, Quota::Size blocks)
    : closer_(closer), blocks_(blocks, own), next_look_(loop, [this] { begin_looks(); }) {
  ::signal(SIGIO, SIG_IGN);
}

tl::unexpected<Error> HeldFiles::refuse(uid_t user) {
  begin_look(user);  // for the next request
  return fail(EDQUOT);
}

Result<UniqueFd> HeldFiles::hold(uid_t user, int file, size_t bytes, uint64_t session) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return fail(errno);
  UniqueFd theirs = reopen_read_only(file);
  UniqueFd ours = reopen_read_only(file);
  if (!theirs || !ours) return fail(errno);
  const size_t blocks = blocks_of(bytes);
  Held held{user, session, blocks, std::make_shared<const UniqueFd>(std::move(ours))};
  if (!files_.emplace(status.st_ino, std::move(held)).second) return fail(EAGAIN);  // numbers repeat
  blocks_.take(user, blocks);
  next_look_.arm(MonotonicClock::now() + kLookInterval);
  return theirs;
}

bool HeldFiles::holds(uint64_t session) const {
  if (session == 0) return false;
  return std::ranges::any_of(files_, [&](const auto& file) { return file.second.session == session; });
}

bool HeldFiles::is_known(uid_t user, uint64_t session, TimePoint since) {
  if (held_by(user) == 0 || (allows(user, kLargest) && !holds(session))) return true;
  if (looks_[user].last >= since) return true;
  begin_look(user);
  return false;
}

void HeldFiles::begin_look(uid_t user) {
  Looks& looks = looks_[user];
  if (looks.is_under_way) return;
  const auto looked = std::make_shared<std::vector<Looked>>();
  for (const auto& [inode, held] : files_) {
    if (held.user == user) looked->push_back({inode, held.file, false});
  }
  if (looked->empty()) return;
  const auto work = [looked](int) {
    for (Looked& each : *looked) each.is_closed = !is_open_elsewhere(each.file->get());
  };
  looks.begun = MonotonicClock::now();
  const auto then = [this, user, looked] { end_look(user, *looked); };
  looks.is_under_way = closer_.work_with(user, looked->front().file->get(), work, then).has_value();
}

void HeldFiles::end_look(uid_t user, const std::vector<Looked>& looked) {
  Looks& looks = looks_[user];
  looks.is_under_way = false;
  looks.last = looks.begun;
  for (const Looked& each : looked) {
    if (!each.is_closed) continue;
    const auto found = files_.find(each.inode);
    if (found == files_.end()) continue;  // an earlier look, which was left for lack of memory, has found it
    blocks_.give_back(user, found->second.blocks);
    files_.erase(found);
  }
  if (held_by(user) == 0) looks_.erase(user);
}

// The agent's own descriptor keeps the memory, too. So it is closed at most a second after all others.
void HeldFiles::begin_looks() {
  std::set<uid_t> users;
  for (const auto& [inode, held] : files_) users.insert(held.user);
  for (const uid_t user : users) begin_look(user);
  if (!files_.empty()) next_look_.arm(MonotonicClock::now() + kLookInterval);
}

}  // namespace verbena::agent
