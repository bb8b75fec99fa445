// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_tree.h"

#include <charconv>
#include <exception>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/inotify.h>

#include "agent/event_loop.h"
#include "agent/status/state_sweeper.h"
#include "base/format.h"
#include "base/log.h"

namespace verbena::agent {

CounterReaders::CounterReaders() : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!fd_) log_warning("no inotify (errno {}): counters in files are renewed once a second only", errno);
}

void CounterReaders::watch(const std::string& folder) {
  if (fd_ && ::inotify_add_watch(fd_.get(), folder.c_str(), IN_OPEN | IN_CLOSE | IN_ONLYDIR) < 0) {
    log_info("readers of {} are not noticed: errno {}", folder, errno);
  }
}

void CounterReaders::take_news() {
  alignas(inotify_event) char buffer[16 << 10];
  const ssize_t bytes = ::read(fd_.get(), buffer, sizeof buffer);
  inotify_event event;
  for (ssize_t at = 0; at < bytes; at += static_cast<ssize_t>(sizeof event + event.len)) {
    std::memcpy(&event, buffer + at, sizeof event);
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      open_.clear();
    } else if ((event.mask & IN_IGNORED) != 0) {
      open_.erase(event.wd);  // its files may stay open, but do not change any more
    } else if ((event.mask & IN_ISDIR) == 0) {
      // The writer's own opens and closes add up to zero.
      int64_t& open = open_[event.wd];
      open = std::max<int64_t>(0, open + ((event.mask & IN_OPEN) != 0 ? 1 : -1));
    }
  }
}

void CounterReaders::watch_in(EventLoop& loop, std::function<void()> on_first, Duration pause) {
  const int number = fd();
  if (number < 0) return;
  loop.watch(number, EPOLLIN, [this, &loop, on_first = std::move(on_first), pause, number](uint32_t) {
    const bool had_any = any();
    take_news();
    loop.at(MonotonicClock::now() + pause, [&loop, number] { loop.set_events(number, EPOLLIN); });
    loop.set_events(number, 0);
    if (!had_any && any()) on_first();
  });
}

bool CounterReaders::any() const {
  return std::ranges::any_of(open_, [](const auto& folder) { return folder.second > 0; });
}

namespace {

namespace fs = std::filesystem;

// Folders of the devices. As in sysfs, the class folders have links to them.
constexpr std::string_view kHardware = "sys/devices/infiniband.verbena";
constexpr std::string_view kHardwareFromClass = "../../devices/infiniband.verbena";
constexpr std::string_view kDevices = "sys/class/infiniband";
constexpr std::string_view kUverbs = "sys/class/infiniband_verbs";
constexpr std::string_view kMads = "sys/class/infiniband_mad";
constexpr std::string_view kMisc = "sys/class/misc";
constexpr std::string_view kVirtualMisc = "sys/devices/virtual/misc";
constexpr std::string_view kNodes = "dev/infiniband";
constexpr std::string_view kConnectionManager = "rdma_cm";
constexpr std::string_view kSpare = ".fresh-";
// Character devices that any user may open. /dev/full refuses writes: with /dev/null, librdmacm of rdma-core
// would have all its commands accepted and wait forever for their effect.
constexpr const char* kNull = "/dev/null";
constexpr const char* kFull = "/dev/full";

[[noreturn]] void raise(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

void write_file(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    raise(path);
}

void write_folder(const std::string& at, const Folder& folder) {
  std::string made;
  for (const FolderEntry& entry : folder) {
    const std::string path = at + '/' + entry.path;
    std::string parent = path.substr(0, path.rfind('/'));
    if (parent != made) fs::create_directories(made = std::move(parent));
    if (entry.is_link) {
      fs::create_symlink(entry.text, path);
    } else {
      write_file(path, entry.text);
    }
  }
}

bool exchange(const std::string& one, const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

// Interval between retries: a full file system may have room again.
constexpr Duration kRetryInterval = std::chrono::seconds(1);

}  // namespace

template <class Work>
bool StateTree::attempt(Work work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    if (last_failure_ != error.what()) log_warning("the state directory: {}", error.what());
    last_failure_ = error.what();
    return false;
  }
}

bool StateTree::step_aside() {
  auto aside = set_aside(directory_);
  if (!aside) return false;
  directory_ = std::move(*aside);
  return true;
}

StateTree::~StateTree() {
  attempt([&] {
    fs::remove_all(directory_);
    std::error_code others_are_there;
    fs::remove(fs::path(directory_).parent_path(), others_are_there);
  });
}

bool StateTree::show(const std::vector<control::Link>& links) {
  const bool shown = attempt([&] {
    for (const std::string_view folder : {kHardware, kDevices, kUverbs, kMads, kMisc, kVirtualMisc, kNodes}) {
      fs::create_directories(verbena::format("{}/{}", directory_, folder));
    }
    if (!begun_) {
      discard_what_was_left();
      put_file(verbena::format("{}/abi_version", kUverbs), "6\n");
      put_file(verbena::format("{}/abi_version", kMads), "5\n");
      put_connection_manager();
    }
    begun_ = true;
    std::vector<std::string> devices;
    std::vector<std::string> uverbs{"abi_version"};
    std::vector<std::string> mads{"abi_version"};
    std::vector<std::string> nodes{std::string(kConnectionManager)};
    for (const control::Link& link : links) {
      devices.push_back(link.name);
      uverbs.push_back(uverbs_name(link));
      mads.insert(mads.end(), {umad_name(link), issm_name(link)});
      nodes.insert(nodes.end(), {link.name, uverbs_name(link), umad_name(link), issm_name(link)});
      const auto before = shown_.find(link.name);
      if (before != shown_.end() && before->second == link) continue;
      put_device(link);
      shown_[link.name] = link;
      if (const auto counters = counters_.extract(link.name)) show_counters(link.name, counters.mapped());
    }
    remove_strangers(std::string(kDevices), devices);
    remove_strangers(std::string(kUverbs), uverbs);
    remove_strangers(std::string(kMads), mads);
    remove_strangers(std::string(kNodes), nodes);
    remove_strangers(std::string(kHardware), devices);
    const auto is_gone = [&](const auto& entry) {
      return std::ranges::find(devices, entry.first) == devices.end();
    };
    std::erase_if(shown_, is_gone);
    std::erase_if(counters_, is_gone);
    last_failure_.clear();
  });
  return shown;
}

void StateTree::put_device(const control::Link& link) {
  put_folder(verbena::format("{}/{}", kHardware, link.name), device_folder(link, VERBENA_VERSION));
  const auto put_in_class = [&](std::string_view folder, const std::string& name) {
    const std::string_view its_class = folder.substr(folder.rfind('/') + 1);
    put_link(verbena::format("{}/{}", folder, name),
             verbena::format("{}/{}/{}/{}", kHardwareFromClass, link.name, its_class, name));
  };
  put_in_class(kDevices, link.name);
  put_in_class(kUverbs, uverbs_name(link));
  put_in_class(kMads, umad_name(link));
  put_in_class(kMads, issm_name(link));
  for (const std::string& node : {link.name, uverbs_name(link), umad_name(link), issm_name(link)}) {
    put_link(verbena::format("{}/{}", kNodes, node), kNull);
  }
  for (const char* counters : {"counters", "hw_counters"}) {
    readers_.watch(verbena::format("{}/{}/{}/ports/1/{}", directory_, kDevices, link.name, counters));
  }
}

void StateTree::put_connection_manager() {
  put_folder(verbena::format("{}/{}", kVirtualMisc, kConnectionManager), connection_manager_folder());
  put_link(verbena::format("{}/{}", kMisc, kConnectionManager),
           verbena::format("../../devices/virtual/misc/{}", kConnectionManager));
  put_link(verbena::format("{}/{}", kNodes, kConnectionManager), kFull);
}

void StateTree::show_counters(const std::string& link, const DeviceCounters& counters) {
  if (!shown_.contains(link)) return;
  DeviceCounters& known = counters_.try_emplace(link).first->second;
  attempt([&] {
    for (const control::NamedCounter& counter : control::kNamedCounters) {
      const uint64_t value = counter.value(counters);
      if (counter.value(known) == value) continue;
      write_counter(verbena::format("{}/{}/{}/ports/1/{}", directory_, kDevices, link, counter.path), value);
    }
    known = counters;
  });
}

std::string StateTree::spare_path() {
  return discarded_.emplace_back(verbena::format("{}/{}{}", directory_, kSpare, spare_paths_++));
}

// Discards temporary files of a killed agent, and starts numbering after theirs.
void StateTree::discard_what_was_left() {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kSpare)) continue;
    discarded_.push_back(entry.path());
    uint64_t number = 0;
    std::from_chars(name.data() + kSpare.size(), name.data() + name.size(), number);
    spare_paths_ = std::max(spare_paths_, number + 1);
  }
}

void StateTree::remove_discarded(const std::function<bool()>& is_over) {
  while (!discarded_.empty()) {
    bool is_done = true;
    attempt([&] { is_done = remove_by_and_by(discarded_.back(), is_over); });
    if (!is_done) return;
    discarded_.pop_back();  // a failure to remove it has been logged
  }
}

void StateTree::put_folder(const std::string& path, const Folder& folder) {
  const std::string fresh = spare_path();
  write_folder(fresh, folder);
  put_in_place(fresh, path);
}

// Puts `fresh` at `path`, whatever is there: an agent of another release may have left a folder where this
// one has a link.
void StateTree::put_in_place(const std::string& fresh, const std::string& path) {
  const std::string place = directory_ + '/' + path;
  if (exchange(fresh, place)) return;
  // There is nothing to exchange with, or the file system does not support it.
  if (fs::exists(fs::symlink_status(place))) fs::rename(place, spare_path());
  fs::rename(fresh, place);
}

// Writes in place, because readers keep the file open for long. Uses one write, so that they never read half
// a number.
void StateTree::write_counter(const std::string& path, uint64_t value) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = verbena::format("{}\n", value);
  if (!file || ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0) {
    raise(path);
  }
}

void StateTree::put_file(const std::string& path, std::string_view text) {
  const std::string fresh = spare_path();
  write_file(fresh, text);
  fs::rename(fresh, directory_ + '/' + path);
}

void StateTree::put_link(const std::string& path, const std::string& target) {
  const std::string fresh = spare_path();
  fs::create_symlink(target, fresh);
  put_in_place(fresh, path);
}

void StateTree::remove_strangers(const std::string& path, const std::vector<std::string>& known) {
  std::vector<fs::path> strangers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_ + '/' + path)) {
    if (std::find(known.begin(), known.end(), entry.path().filename()) == known.end()) {
      strangers.push_back(entry.path());
    }
  }
  // Renames each folder as a whole, so that it disappears at once.
  for (const fs::path& stranger : strangers) fs::rename(stranger, spare_path());
}

StateWriter::StateWriter(std::string directory) : tree_(std::move(directory)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warning("programs that look into /sys see no devices: no thread: {}", error.what());
  }
}

StateWriter::~StateWriter() {
  stop();
}

bool StateWriter::step_aside() {
  stop();
  return tree_.step_aside();
}

bool StateWriter::is_wanted() {
  const std::lock_guard lock(mutex_);
  return stop_ || links_ || !counters_.empty();
}

void StateWriter::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateWriter::show(const std::vector<control::Link>& links) {
  {
    const std::lock_guard lock(mutex_);
    links_ = links;
  }
  changed_.notify_all();
}

void StateWriter::show_counters(std::map<std::string, DeviceCounters> by_link) {
  {
    const std::lock_guard lock(mutex_);
    counters_ = std::move(by_link);
  }
  changed_.notify_all();
}

void StateWriter::wait(TimePoint deadline) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, deadline - MonotonicClock::now(),
                                      [&] { return !links_ && counters_.empty() && !writing_; });
  if (!done) log_warning("the state directory is slow: programs may look into /sys before it is ready");
}

void StateWriter::run() {
  std::unique_lock lock(mutex_);
  std::vector<control::Link> wanted;
  TimePoint next_try = kNever;  // when to write `wanted` again
  while (!stop_) {
    if (links_) {
      wanted = std::move(*links_);
      links_.reset();
      next_try = TimePoint::min();
    }
    const auto counters = std::exchange(counters_, {});
    const bool tries = next_try <= MonotonicClock::now();
    writing_ = tries || !counters.empty();
    if (!writing_) {
      changed_.notify_all();
      if (tree_.has_discarded()) {
        lock.unlock();
        tree_.remove_discarded([this] { return is_wanted(); });
        lock.lock();
      } else if (next_try == kNever) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, next_try - MonotonicClock::now());
      }
      continue;
    }
    lock.unlock();
    if (tries) next_try = tree_.show(wanted) ? kNever : MonotonicClock::now() + kRetryInterval;
    for (const auto& [link, sums] : counters) tree_.show_counters(link, sums);
    lock.lock();
  }
}

}  // namespace verbena::agent
