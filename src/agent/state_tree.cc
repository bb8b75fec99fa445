// SPDX-License-Identifier: Apache-2.0
#include "agent/state_tree.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/state_sweeper.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDevices = "sys/class/infiniband";
constexpr std::string_view kUverbs = "sys/class/infiniband_verbs";
constexpr std::string_view kMads = "sys/class/infiniband_mad";
constexpr std::string_view kNodes = "dev/infiniband";
constexpr std::string_view kSpare = ".fresh-";
constexpr const char* kNull = "/dev/null";  // a character device that everybody may open

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

bool StateTree::show(const std::vector<agent_client::Link>& links) {
  const bool shown = attempt([&] {
    for (const std::string_view folder : {kDevices, kUverbs, kMads, kNodes}) {
      fs::create_directories(fmt::format("{}/{}", directory_, folder));
    }
    if (!begun_) {
      discard_what_was_left();
      put_file(fmt::format("{}/abi_version", kUverbs), "6\n");
      put_file(fmt::format("{}/abi_version", kMads), "5\n");
    }
    begun_ = true;
    std::vector<std::string> devices;
    std::vector<std::string> uverbs{"abi_version"};
    std::vector<std::string> mads{"abi_version"};
    // No rdma_cm: a node that takes every command and does nothing leads librdmacm into a deadlock.
    std::vector<std::string> nodes;
    for (const agent_client::Link& link : links) {
      const std::string verbs_name = uverbs_name(link);
      devices.push_back(link.name);
      uverbs.push_back(verbs_name);
      nodes.push_back(link.name);
      nodes.push_back(verbs_name);
      for (const std::string& name : {umad_name(link), issm_name(link)}) {
        mads.push_back(name);
        nodes.push_back(name);
      }
      const auto before = shown_.find(link.name);
      if (before != shown_.end() && before->second == link) continue;
      put_folder(fmt::format("{}/{}", kDevices, link.name), device_folder(link, VERBENA_VERSION));
      for (const char* counters : {"counters", "hw_counters"}) {
        readers_.watch(fmt::format("{}/{}/{}/ports/1/{}", directory_, kDevices, link.name, counters));
      }
      put_folder(fmt::format("{}/{}", kUverbs, verbs_name), uverbs_folder(link));
      put_folder(fmt::format("{}/{}", kMads, umad_name(link)), umad_folder(link));
      put_folder(fmt::format("{}/{}", kMads, issm_name(link)), issm_folder(link));
      put_link(fmt::format("{}/{}", kNodes, umad_name(link)), kNull);
      put_link(fmt::format("{}/{}", kNodes, issm_name(link)), kNull);
      put_link(fmt::format("{}/{}", kNodes, link.name), kNull);
      put_link(fmt::format("{}/{}", kNodes, verbs_name), kNull);
      shown_[link.name] = link;
      if (const auto counters = counters_.extract(link.name)) show_counters(link.name, counters.mapped());
    }
    remove_strangers(std::string(kDevices), devices);
    remove_strangers(std::string(kUverbs), uverbs);
    remove_strangers(std::string(kMads), mads);
    remove_strangers(std::string(kNodes), nodes);
    const auto is_gone = [&](const auto& entry) {
      return std::find(devices.begin(), devices.end(), entry.first) == devices.end();
    };
    std::erase_if(shown_, is_gone);
    std::erase_if(counters_, is_gone);
    last_failure_.clear();
  });
  return shown;
}

void StateTree::show_counters(const std::string& link, const DeviceCounters& counters) {
  if (!shown_.contains(link)) return;
  DeviceCounters& known = counters_.try_emplace(link).first->second;
  attempt([&] {
    for (const agent_client::NamedCounter& counter : agent_client::kNamedCounters) {
      const uint64_t value = counter.value(counters);
      if (counter.value(known) == value) continue;
      write_counter(fmt::format("{}/{}/{}/ports/1/{}", directory_, kDevices, link, counter.path), value);
    }
    known = counters;
  });
}

std::string StateTree::spare_path() {
  return discarded_.emplace_back(fmt::format("{}/{}{}", directory_, kSpare, spare_paths_++));
}

// By an agent that was killed. Its spare paths must not meet ours.
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
    discarded_.pop_back();  // what could not be removed stays, and has been told of
  }
}

void StateTree::put_folder(const std::string& path, const Folder& folder) {
  const std::string fresh = spare_path();
  const std::string place = directory_ + '/' + path;
  write_folder(fresh, folder);
  if (exchange(fresh, place)) return;
  // Nothing to exchange it with, or a file system that cannot.
  if (fs::exists(fs::symlink_status(place))) fs::rename(place, spare_path());
  fs::rename(fresh, place);
}

// In place, as programs that read it have it open for long; and at one go, so that they find no half of a
// number.
void StateTree::write_counter(const std::string& path, uint64_t value) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = fmt::format("{}\n", value);
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
  fs::rename(fresh, directory_ + '/' + path);
}

void StateTree::remove_strangers(const std::string& path, const std::vector<std::string>& known) {
  std::vector<fs::path> strangers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_ + '/' + path)) {
    if (std::find(known.begin(), known.end(), entry.path().filename()) == known.end()) {
      strangers.push_back(entry.path());
    }
  }
  // A folder goes at once and not file by file.
  for (const fs::path& stranger : strangers) fs::rename(stranger, spare_path());
}

}  // namespace verbena::agent
