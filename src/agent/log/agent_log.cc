// SPDX-License-Identifier: Apache-2.0
#include "agent/log/agent_log.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/event_loop.h"
#include "base/detached_thread.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "base/unique_fd.h"

namespace verbena::agent {

namespace {

bool write_all(std::string_view& rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      // Another program that shares the open file may have made it non-blocking.
      pollfd entry{STDERR_FILENO, POLLOUT, 0};
      ::poll(&entry, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Returns <home>/<prefix><network namespace>, beside the traces. Empty if another user can write to <home>:
// the path could be a pipe without a reader, or a file that other users can read.
std::string path_with(std::string_view prefix) {
  const std::string state = paths::state_directory_for(paths::own_user());
  const size_t slash = state.rfind('/');
  if (slash == std::string::npos) return {};
  if (!paths::is_private_directory(state.substr(0, slash).c_str(), paths::own_user())) return {};
  return state.substr(0, slash + 1).append(prefix).append(state.substr(slash + 1));
}

// Opens the log, or /dev/null if that fails. Does not follow a symbolic link, which is never the agent's.
UniqueFd open_log(const std::string& path) {
  constexpr int kHow = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd fd(path.empty() ? -1 : ::open(path.c_str(), kHow, 0600));
  struct stat status {};
  if (fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode)) return fd;
  return UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
}

constexpr size_t kStack = size_t{256} << 10;

std::string text_of(const LogQueue::Entry& entry) {
  if (entry.dropped == 0) return entry.line;
  return log_text(LogLevel::kWarning,
                  verbena::format("{} lines are missing here: they could not be written", entry.dropped));
}

}  // namespace

bool LogOutput::put(std::string_view line) {
  std::string_view end = is_torn_ ? "\n" : "";
  if (!write_all(end)) return false;
  is_torn_ = false;
  std::string_view rest = line;
  if (write_all(rest)) return true;
  is_torn_ = rest.size() < line.size();
  return false;
}

std::string log_file_path() {
  return path_with("log-");
}

std::string old_log_file_path() {
  return path_with("old-log-");
}

bool LogFile::is_needed() {
  struct stat status {};
  return ::fstat(STDERR_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

LogFile::LogFile(std::string path, std::string old_path, off_t max_bytes)
    : path_(std::move(path)), old_path_(std::move(old_path)), max_bytes_(max_bytes) {
  open();
  look_at_size();
}

bool LogFile::put(std::string_view line) {
  const bool is_written = output_.put(line);
  look_at_size();
  return is_written;
}

void LogFile::open() {
  if (const UniqueFd fd = open_log(path_)) ::dup3(fd.get(), STDERR_FILENO, 0);
}

void LogFile::look_at_size() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > max_bytes_ &&
      std::rename(path_.c_str(), old_path_.c_str()) == 0) {
    open();
  }
}

LogLimit::Count* LogLimit::count_of(std::optional<uid_t> user) {
  const auto known = counts_.find(user);
  if (known != counts_.end()) return &known->second;
  if (user && counts_.size() >= sizes_.users) return nullptr;
  return &counts_[user];
}

bool LogLimit::admits(std::optional<uid_t> user, TimePoint now) {
  if (counts_.empty()) end_ = now + sizes_.window;
  Count* const count = count_of(user);
  const bool is_admitted =
      count != nullptr && (user ? count->written < sizes_.of_user && written_of_users_ < sizes_.of_all
                                : count->written < sizes_.of_all);
  if (!is_admitted) {
    ++(count != nullptr ? count->left_out : left_out_of_others_);
    leaves_out_ = true;
    return false;
  }
  ++count->written;
  if (user) ++written_of_users_;
  return true;
}

std::vector<std::string> LogLimit::take_reports(TimePoint now) {
  std::vector<std::string> reports;
  if (counts_.empty() || now < end_) return reports;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(sizes_.window).count();
  const auto report = [&](const std::string& whose, size_t lines) {
    if (lines == 0) return;
    reports.push_back(verbena::format("{}: {} lines were left out, more than are logged in {} seconds", whose,
                                      lines, seconds));
  };
  for (const auto& [user, count] : counts_) {
    report(user ? verbena::format("user {}", *user) : "the agent itself", count.left_out);
  }
  report("further users", left_out_of_others_);
  counts_.clear();
  written_of_users_ = left_out_of_others_ = 0;
  leaves_out_ = false;
  return reports;
}

void LogQueue::add(std::string line) {
  is_failing_ = false;
  if (bytes_ + line.size() <= max_bytes_) {
    bytes_ += line.size();
    entries_.push_back({.line = std::move(line)});
    return;
  }
  if (entries_.empty() || entries_.back().dropped == 0) entries_.emplace_back();
  ++entries_.back().dropped;
}

LogQueue::Entry LogQueue::take() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.line.size();
  return entry;
}

void LogQueue::failed(const Entry& entry) {
  size_t dropped = std::max<size_t>(entry.dropped, 1);
  for (const Entry& one : entries_) dropped += std::max<size_t>(one.dropped, 1);
  entries_.clear();
  entries_.push_back({.line = {}, .dropped = dropped});
  bytes_ = 0;
  is_failing_ = true;
}

struct AgentLog::State {
  State(size_t max_bytes, const LogLimit::Sizes& limits) : queue(max_bytes), limit(limits) {}

  void add_reports(TimePoint now) {
    for (const std::string& report : limit.take_reports(now)) {
      queue.add(log_text(LogLevel::kWarning, report));
    }
  }
  bool is_idle() const { return !is_writing && !queue.has_next(); }

  std::mutex mutex;
  // Under the mutex
  std::condition_variable changed, idle;
  LogQueue queue;
  LogLimit limit;
  std::shared_ptr<const Put> put;
  uint64_t generation = 0;  // of the current writer: others end
  bool has_writer = false;
  bool is_writing = false;
};

struct AgentLog::Writer {
  bool write(const LogQueue::Entry& entry) const {
    try {
      return (*put)(text_of(entry));
    } catch (...) {  // out of memory
      return false;
    }
  }

  std::shared_ptr<State> state;
  std::shared_ptr<const Put> put;
  uint64_t generation;
};

AgentLog::AgentLog(Put put, size_t max_bytes, const LogLimit::Sizes& limits)
    : state_(std::make_shared<State>(max_bytes, limits)) {
  state_->put = std::make_shared<const Put>(std::move(put));
  set_log_sink(this);
}

AgentLog::~AgentLog() {
  set_log_sink(nullptr);
  {
    const std::lock_guard lock(state_->mutex);
    state_->add_reports(kNever);
    wake_writer();
  }
  flush();
  const std::lock_guard lock(state_->mutex);
  ++state_->generation;
  state_->changed.notify_all();
}

void AgentLog::write(std::string line) noexcept {
  try {
    const TimePoint now = MonotonicClock::now();
    const std::lock_guard lock(state_->mutex);
    state_->add_reports(now);
    if (state_->limit.admits(ActingFor::user(), now)) state_->queue.add(std::move(line));
    wake_writer();
  } catch (...) {  // out of memory: drop the line
  }
}

void AgentLog::write_by(Put put) {
  auto shared = std::make_shared<const Put>(std::move(put));
  const std::lock_guard lock(state_->mutex);
  state_->put = std::move(shared);
  ++state_->generation;
  state_->has_writer = state_->is_writing = false;
  wake_writer();
}

bool AgentLog::flush(Duration patience) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, patience, [this] { return state_->is_idle(); });
}

// Starts the writer's thread if there is work. If that fails, the next line tries again. REQUIRES: the mutex
// is held
void AgentLog::wake_writer() {
  state_->changed.notify_all();
  if (state_->has_writer || (state_->is_idle() && state_->limit.report_due() == kNever)) return;
  auto writer = std::make_unique<Writer>(Writer{state_, state_->put, state_->generation});
  state_->has_writer = start_detached_thread(run, writer.get(), kStack);
  if (state_->has_writer) writer.release();  // owned by the thread now
}

void* AgentLog::run(void* argument) {
  const std::unique_ptr<Writer> writer(static_cast<Writer*>(argument));
  ::pthread_setname_np(::pthread_self(), "verbena-log");
  State& state = *writer->state;
  std::unique_lock lock(state.mutex);
  while (state.generation == writer->generation) {
    if (!state.queue.has_next()) {
      const TimePoint due = state.limit.report_due();
      if (due == kNever) {
        state.changed.wait(lock);
      } else {
        state.changed.wait_for(lock, due - MonotonicClock::now());
      }
      state.add_reports(MonotonicClock::now());
      continue;
    }
    const LogQueue::Entry entry = state.queue.take();
    state.is_writing = true;
    lock.unlock();
    const bool is_written = writer->write(entry);
    lock.lock();
    if (state.generation != writer->generation) break;  // another thread writes now
    state.is_writing = false;
    if (!is_written) state.queue.failed(entry);
    if (state.is_idle()) state.idle.notify_all();
  }
  return nullptr;
}

}  // namespace verbena::agent
