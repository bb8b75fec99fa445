// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/command.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

namespace verbena::commands::rdma {
namespace {

using control::LinkStatus;

constexpr uint32_t kPorts = 1;

const LinkStatus* find_device(const control::AgentStatus& status, std::string_view name) {
  const auto found =
      std::ranges::find_if(status.links, [&](const LinkStatus& l) { return l.link.name == name; });
  return found != status.links.end() ? &*found : nullptr;
}

// The part of "DEV/PORT" after the slash.
struct PortWord {
  bool is_valid = true;
  bool is_one = false;  // this port only; otherwise all ports from `port` on
  uint32_t port = 0;
};

PortWord parse_port(std::string_view word, bool strict) {
  const size_t slash = word.find('/');
  if (slash == std::string_view::npos || slash + 1 == word.size()) return {.is_valid = !strict};
  const std::string_view text = word.substr(slash + 1);
  if (text[0] == '-') return {.is_valid = !strict, .is_one = true};
  if (std::isdigit(static_cast<unsigned char>(text[0])) == 0) return {.is_valid = false};
  uint32_t port = UINT32_MAX;
  std::from_chars(text.data(), text.data() + text.size(), port);
  // An explicit port 0 is invalid.
  return {.is_valid = port != 0, .is_one = true, .port = port};
}

int visit_all_ports(const control::AgentStatus& status, bool strict, const OnPort& visit) {
  for (const LinkStatus& device : status.links) {
    for (uint32_t port = strict ? 1 : 0; port <= kPorts; ++port) {
      if (const int result = visit(device, port); result != 0) return result;
    }
  }
  return Command::kDone;
}

int visit_ports(Command& command, const control::AgentStatus& status, bool strict, const OnPort& visit) {
  if (command.words().empty()) return visit_all_ports(status, strict, visit);
  const std::string word = command.words().take();
  const LinkStatus* device = find_device(status, word.substr(0, word.rfind('/')));
  const PortWord wanted = parse_port(word, strict);
  if (device == nullptr || !wanted.is_valid || wanted.port > kPorts)
    return command.complain("Wrong device name");
  const uint32_t last = wanted.is_one ? wanted.port : kPorts;
  for (uint32_t port = wanted.port; port <= last; ++port) {
    if (const int result = visit(*device, port); result != 0) return result;
  }
  return Command::kDone;
}

int visit_devices(Command& command, const control::AgentStatus& status, const OnDevice& visit) {
  if (!command.words().empty()) {
    const LinkStatus* device = find_device(status, command.words().word());
    if (device == nullptr) {
      return command.complain(verbena::format("Wrong device name - {}", command.words().word()));
    }
    command.words().drop();
    return visit(*device);
  }
  for (const LinkStatus& device : status.links) {
    if (const int result = visit(device); result != 0) return result;
  }
  return Command::kDone;
}

}  // namespace

int Command::result_of(const control::AdminResult<void>& change) {
  return change ? kDone : refuse(change.error().code, change.error().text);
}

int Command::refuse(int error, std::string_view why) {
  return complain(why.empty() ? verbena::format("error: {}", std::strerror(error))
                              : verbena::format("error: {} ({})", std::strerror(error), why));
}

const control::AgentStatus* Command::status() {
  if (!status_) {
    auto answer = system_.status();
    if (!answer) {
      refuse(answer.error().code, answer.error().text);
      return nullptr;
    }
    status_ = std::move(*answer);
    std::ranges::sort(status_->links, {}, [](const LinkStatus& one) { return one.link.device_index; });
  }
  return &*status_;
}

int choose(Command& command, const Function& otherwise, Words known, std::string_view what) {
  if (command.words().empty()) return otherwise(command);
  const std::string& word = command.words().word();
  const auto* found =
      std::ranges::find_if(known, [&](const Word& one) { return abbreviates(word, one.word); });
  if (found == known.end()) {
    command.complain(verbena::format("Unknown {} '{}'.", what, word));
    return Command::kDone;
  }
  command.words().drop();
  return found->function(command);
}

bool is_complete(Command& command) {
  if (command.words().empty()) return true;
  command.complain(verbena::format("Unknown parameter '{}'.", command.words().word()));
  return false;
}

int for_devices(Command& command, const OnDevice& visit) {
  const control::AgentStatus* status = command.status();
  if (status == nullptr) return Command::kFailed;
  command.printer().begin_list();
  const int result = visit_devices(command, *status, visit);
  command.printer().end_list();
  return result;
}

int for_the_device(Command& command, const OnDevice& visit) {
  if (command.words().empty()) return command.complain("Please provide device name.");
  return for_devices(command, visit);
}

int for_ports(Command& command, bool strict, const OnPort& visit) {
  const control::AgentStatus* status = command.status();
  if (status == nullptr) return Command::kFailed;
  command.printer().begin_list();
  const int result = visit_ports(command, *status, strict, visit);
  command.printer().end_list();
  return result;
}

int take_filters(Command& command, std::span<const std::string_view> names, Filters& filters) {
  auto parsed = parse_filters(command.words(), names);
  if (!parsed) return command.complain(parsed.error());
  filters = std::move(*parsed);
  while (!command.words().empty()) {
    const std::string word = command.words().take();
    if (abbreviates(word, "dev") || abbreviates(word, "link")) break;
  }
  return Command::kDone;
}

}  // namespace verbena::commands::rdma
