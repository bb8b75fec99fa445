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
#include "commands/rdma/arguments.h"
#include "commands/rdma/filters.h"
#include "commands/rdma/printer.h"
#include "commands/rdma/system.h"

namespace verbena::commands::rdma {

struct Options {
  Printer::Form form = Printer::Form::kText;
  bool details = false;
  bool raw = false;
  std::string program = "rdma";
};

// A command that is being carried out: its remaining words, its output, and access to the devices.
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

  // Prints `text` as it is, in every output form.
  void say(std::string_view text) { out_ += text; }
  // Shows the output so far. False: the output is closed.
  bool flush() { return !flush_ || flush_(); }
  void set_flush(std::function<bool()> flush) { flush_ = std::move(flush); }
  // Adds a line to the error output. Returns kFailed.
  int complain(std::string_view sentence) {
    complaints_ += sentence;
    complaints_ += '\n';
    return kFailed;
  }
  int complain_of(const control::AdminError& error);
  // Reports an error as iproute2 reports the kernel's: "error: Operation not supported (why)". Returns
  // kFailed.
  int refuse(int error, std::string_view why);

  // The current devices, QPs and other objects. Asks the system once. Returns nullptr after reporting an
  // error.
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

// Calls the function of the first word in `known` that the next word abbreviates, or `otherwise` if no word
// remains. Reports an unknown word; the exit status is then 0, as iproute2's.
int choose(Command& command, const Function& otherwise, Words known, std::string_view what);
// Whether no word remains. If one does, reports it; the exit status is then 0, too.
bool is_complete(Command& command);

using OnDevice = std::function<int(const control::LinkStatus& device)>;
// `port` is 0 for objects that belong to no port.
using OnPort = std::function<int(const control::LinkStatus& device, uint32_t port)>;

// Calls `visit` for the device that the next word names, or for all devices. The output is one list.
int for_devices(Command& command, const OnDevice& visit);
// The same, but the word is required.
int for_the_device(Command& command, const OnDevice& visit);
// Calls `visit` for the port "DEV/PORT", for all ports of "DEV", or without a word for all ports. With
// `strict`, ports begin at 1 and "DEV" without a port is an error; otherwise port 0 is included.
int for_ports(Command& command, bool strict, const OnPort& visit);

// Parses filters, as in "show qp link rxe0/1 lqpn 17", and removes the words up to and including "dev" or
// "link". The device's name and later words remain.
int take_filters(Command& command, std::span<const FilterName> names, Filters& filters);

// The functions for rdma's objects: dev, link, resource, statistic, system, monitor.
int show_or_change_devices(Command& command);
int show_or_change_links(Command& command);
int show_resources(Command& command);
int show_statistics(Command& command);
int show_or_change_system(Command& command);
int monitor(Command& command);

}  // namespace verbena::commands::rdma
