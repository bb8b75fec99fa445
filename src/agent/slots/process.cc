// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/process.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent/sessions/client_files.h"
#include "base/format.h"
#include "base/socket_option.h"
#include "base/text.h"
#include "control/model/agent_process.h"

namespace verbena::agent {

namespace {

// The first 1023 bytes of a file in /proc.
class ProcText {
 public:
  explicit ProcText(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file) bytes_ = ::read(file.get(), text_, sizeof text_ - 1);
    text_[std::max<ssize_t>(bytes_, 0)] = 0;
  }
  std::string_view view() const { return text_; }

 private:
  char text_[1024];
  ssize_t bytes_ = 0;
};

// Returns the offset of this time namespace's boot clock to the machine's. Times in /proc are relative to the
// reader's time namespace.
int64_t boot_clock_offset_ns() {
  const ProcText offsets("/proc/self/timens_offsets");
  const size_t at = offsets.view().find("boottime");
  long long seconds = 0, nanoseconds = 0;
  if (at == std::string_view::npos) return 0;  // before Linux 5.6
  std::sscanf(offsets.view().data() + at, "boottime %lld %lld", &seconds, &nanoseconds);
  return seconds * 1'000'000'000 + nanoseconds;
}

constexpr std::string_view kUnifiedGroup = "0::";
constexpr std::string_view kFreezerGroup = ":freezer:";

bool has_line(const std::string& file, std::string_view wanted) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line == wanted) return true;
  }
  return false;
}

// Whether the process's control group is frozen. cgroups(7): version 2 has one hierarchy; in version 1 the
// freezer is one of several.
bool is_frozen(pid_t pid) {
  std::ifstream groups(verbena::format("/proc/{}/cgroup", pid));
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with(kUnifiedGroup)) {
      const std::string group = "/sys/fs/cgroup" + line.substr(kUnifiedGroup.size());
      if (has_line(group + "/cgroup.events", "frozen 1")) return true;
    }
    const size_t freezer = line.find(kFreezerGroup);
    if (freezer != std::string::npos) {
      const std::string group = "/sys/fs/cgroup/freezer" + line.substr(freezer + kFreezerGroup.size());
      if (has_line(group + "/freezer.state", "FROZEN")) return true;
    }
  }
  return false;
}

// The type of the file system that gives each process an inode number of its own (pidfs; PID_FS_MAGIC in
// newer headers). Pidfds of older kernels all have the same inode.
constexpr auto kPidFileSystem = 0x50494446;

namespace fs = std::filesystem;

// Descriptors that one search looks at. Beyond that the holder's process stays unknown.
constexpr size_t kMaxLinks = 65536;

void append_holders(const char* table, uint16_t port, std::vector<PortHolder>& holders) {
  std::ifstream lines(table);
  std::string line;
  std::getline(lines, line);  // the headings
  while (std::getline(lines, line)) {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...
    unsigned local_port = 0;
    unsigned uid = 0;
    unsigned long inode = 0;
    const int fields = std::sscanf(line.c_str(), " %*d: %*[0-9A-Fa-f]:%x %*s %*x %*s %*s %*x %u %*d %lu",
                                   &local_port, &uid, &inode);
    if (fields == 3 && local_port == port) holders.push_back({uid, inode});
  }
}

}  // namespace

uint64_t start_time_of(pid_t pid) {
  if (pid <= 0) return 0;
  const ProcText text(verbena::format("/proc/{}/stat", pid));
  const std::string_view stat = text.view();
  // starttime is field 22. Field 2, the name in parentheses, may contain anything (proc(5)).
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string_view::npos; ++field) at = stat.find(' ', at + 1);
  uint64_t ticks = 0;
  if (at != std::string_view::npos) std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  const int64_t offset = ticks != 0 ? boot_clock_offset_ns() : 0;
  if (offset == 0) return ticks;
  const int64_t tick_ns = 1'000'000'000 / ::sysconf(_SC_CLK_TCK);
  return static_cast<uint64_t>((static_cast<int64_t>(ticks) * tick_ns - offset) / tick_ns);
}

bool is_same_start(uint64_t one, uint64_t other) {
  return std::max(one, other) - std::min(one, other) <= 1;
}

UniqueFd watch_process(pid_t pid) {
  if (pid <= 0) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // the kernel sets close-on-exec
}

SharedProcess share_process(UniqueFd pidfd, ForeignCloser* closer, uid_t user) {
  if (closer != nullptr) return closer->share(user, std::move(pidfd));
  return pidfd ? std::make_shared<const UniqueFd>(std::move(pidfd)) : nullptr;
}

bool has_ended(int pidfd) {
  pollfd process{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&process, 1, 0) == 1;
}

// Sends signal 0, which the kernel checks only after it has found the process. EINVAL: the process is in a
// pid namespace that the agent does not see.
bool is_pidfd(int fd) {
  return ::syscall(SYS_pidfd_send_signal, fd, 0, nullptr, 0) == 0 || errno != EBADF;
}

uint64_t unique_number_of(int pidfd) {
  struct statfs system {};
  struct stat status {};
  if (::fstatfs(pidfd, &system) != 0 || system.f_type != kPidFileSystem) return 0;
  return ::fstat(pidfd, &status) == 0 ? status.st_ino : 0;
}

UniqueFd watch_peer(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &length) == 0) return UniqueFd(fd);
  // Before Linux 6.5. Otherwise the process may have ended, and the number be another's.
  return errno == ENOPROTOOPT ? watch_process(pid) : UniqueFd();
}

bool is_stopped(pid_t pid) {
  if (pid <= 0) return false;
  const char state = control::process_state(pid);
  return state == 'T' || state == 't' || is_frozen(pid);
}

std::vector<PortHolder> holders_of_port(uint16_t port) {
  std::vector<PortHolder> holders;
  append_holders("/proc/thread-self/net/udp", port, holders);
  append_holders("/proc/thread-self/net/udp6", port, holders);
  return holders;
}

std::string process_with_socket(uint64_t inode, const std::function<bool()>& may_go_on) {
  const std::string wanted = verbena::format("socket:[{}]", inode);
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    for (fs::directory_iterator fd(process.path() / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
      if (!may_go_on()) return {};
      std::error_code unreadable;
      if (fs::read_symlink(fd->path(), unreadable).native() == wanted) return pid;
    }
  }
  return {};
}

std::string describe_holder(const PortHolder& holder, const std::function<bool()>& may_go_on) {
  const std::string pid = process_with_socket(holder.inode, may_go_on);
  if (pid.empty()) return verbena::format("a program of user {}", holder.uid);
  std::string program;
  std::ifstream name("/proc/" + pid + "/comm");
  std::getline(name, program);
  return verbena::format("{} (pid {}) of user {}", program.empty() ? "a program" : printable(program), pid,
                         holder.uid);
}

void PortHolderSearch::begin(uint16_t port) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(goes_on_, true)) return;
    found_.reset();
  }
  try {
    thread_ = std::jthread([this, port](const std::stop_token& stop) {
      Found found = search_(port, [&] { return !stop.stop_requested(); });
      const std::lock_guard lock(mutex_);
      found_ = std::move(found);
      goes_on_ = false;
      is_done_.notify_all();
    });
  } catch (const std::system_error&) {  // no more threads: the next call tries again
    const std::lock_guard lock(mutex_);
    goes_on_ = false;
  }
}

std::optional<PortHolderSearch::Found> PortHolderSearch::take(Duration patience) {
  std::unique_lock lock(mutex_);
  is_done_.wait_for(lock, patience, [this] { return !goes_on_; });
  return std::exchange(found_, std::nullopt);
}

PortHolderSearch::Found PortHolderSearch::look(uint16_t port, const std::function<bool()>& may_go_on) {
  const auto holders = holders_of_port(port);
  if (holders.empty()) return {};
  const uid_t own = ::geteuid();
  size_t left = kMaxLinks;
  return {describe_holder(holders.front(), [&] { return may_go_on() && left-- > 0; }),
          std::ranges::all_of(holders, [own](const PortHolder& holder) { return holder.uid == own; })};
}

}  // namespace verbena::agent
