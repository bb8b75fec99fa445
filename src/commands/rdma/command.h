// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/format.h"
#include "base/text.h"
#include "commands/rdma/agent_system.h"
#include "commands/rdma/row.h"

namespace verbena::commands::rdma {

struct Options {
  Printer::Form form = Printer::Form::kText;
  bool details = false;
  bool raw = false;
  std::string program = "rdma";
};

// A command of `rdma` that is being carried out: its remaining words, its output, and access to the devices.
class Command {
 public:
  Command(const Options& options, System& system, Arguments words, std::string& out, std::string& complaints)
      : options_(options),
        system_(system),
        out_(out),
        complaints_(complaints),
        words_(std::move(words)),
        printer_(options.form, out) {}

  const Options& options() const { return options_; }
  System& system() { return system_; }
  Arguments& words() { return words_; }
  Printer& printer() { return printer_; }

  // Adds `text` to the output as it is, in every output form.
  void say(std::string_view text) { out_ += text; }
  // Adds a usage text with the name of the program in it. Returns kDone.
  int say_usage(fmt::format_string<const std::string&> text) {
    say(verbena::format(text, options_.program));
    return kDone;
  }
  // Prints the output so far, for commands that run long. Returns false if standard output is closed.
  bool flush() { return !flush_ || flush_(); }
  void set_flush(std::function<bool()> flush) { flush_ = std::move(flush); }
  // Adds a line to the error output. Returns kFailed.
  int complain(std::string_view sentence) {
    complaints_ += sentence;
    complaints_ += '\n';
    return kFailed;
  }
  // Returns kDone, or kFailed after reporting the error of `change`.
  int result_of(const control::AdminResult<void>& change);
  // Reports an errno as iproute2 does: "error: Operation not supported (why)". Returns kFailed.
  int refuse(int error, std::string_view why);

  // Returns the devices, QPs and other objects, with devices in the order of their indices. Asks the system
  // at the first call and returns the same status afterwards. Returns nullptr after reporting an error.
  const control::AgentStatus* status();

  static constexpr int kDone = 0;
  static constexpr int kFailed = 1;

 private:
  const Options& options_;
  System& system_;
  std::string& out_;
  std::string& complaints_;
  Arguments words_;
  Printer printer_;
  std::optional<control::AgentStatus> status_;
  std::function<bool()> flush_;
};

using Function = std::function<int(Command& command)>;

struct Word {
  std::string_view word;
  Function function;
};
using Words = std::initializer_list<Word>;

// Calls the function of a subcommand: the first word in `known` that the command's next word abbreviates.
// Calls `otherwise` if no word remains. Returns the function's result. Reports an unknown word as "Unknown
// WHAT 'WORD'." and then returns kDone, as iproute2 exits with 0.
int choose(Command& command, const Function& otherwise, Words known, std::string_view what);
// Whether no word remains. If one does, reports it as unknown; the caller returns kDone, as iproute2 does.
bool is_complete(Command& command);

using OnDevice = std::function<int(const control::LinkStatus& device)>;
// `port` is 0 for objects that belong to no port.
using OnPort = std::function<int(const control::LinkStatus& device, uint32_t port)>;

// Calls `visit` for the device that the next word names, or without a word for all devices. Prints the output
// of all calls as one list. Returns the first result other than kDone, or kFailed after reporting an error.
int for_devices(Command& command, const OnDevice& visit);
// Like for_devices(), but reports an error if no word names a device.
int for_the_device(Command& command, const OnDevice& visit);
// Like for_devices(), for the port "DEV/PORT", for all ports of "DEV", or without a word for all ports. With
// `strict`, ports begin at 1 and "DEV" without a port is an error. Otherwise ports begin at 0.
int for_ports(Command& command, bool strict, const OnPort& visit);

// Parses filters in the remaining words, as in "show qp link rxe0/1 lqpn 17", into `filters`. Removes the
// words up to and including "dev" or "link", so that the device's name is the next word. Returns kDone, or
// kFailed after reporting an error.
int take_filters(Command& command, std::span<const std::string_view> names, Filters& filters);

// Adds the fields of an object to its row.
using AddFields = void (*)(Row& row, const control::AgentStatus& status, const control::SlotStatus& slot,
                           const control::ObjectNumbers& object);
// Returns a function that lists the objects of kind `kind` of all devices, or of the device that the next
// words name. `names` are the filters that the command accepts. The function calls `add` for each object, to
// add the object's fields to its row.
Function of_devices(std::span<const std::string_view> names, protocol::ObjectKind kind, AddFields add);

// Carry out commands on dev, link, resource, statistic, system and monitor. Return kDone or kFailed.
int show_or_change_devices(Command& command);
int show_or_change_links(Command& command);
int show_resources(Command& command);
int show_statistics(Command& command);
int show_or_change_system(Command& command);
int monitor(Command& command);

}  // namespace verbena::commands::rdma
