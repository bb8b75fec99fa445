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

// One command line on its way: its words, where its answer goes, and what it is about.
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

  // As it is, whatever the form.
  void say(std::string_view text) { out_ += text; }
  // What has been said so far is to be seen now. False: nobody looks any more.
  bool flush() { return !flush_ || flush_(); }
  void set_flush(std::function<bool()> flush) { flush_ = std::move(flush); }
  // A sentence for the user. Answers what the command is to return.
  int complain(std::string_view sentence) {
    complaints_ += sentence;
    complaints_ += '\n';
    return kFailed;
  }
  int complain_of(const control::AdminError& error);
  // "error: Operation not supported (why)", as iproute2 says what the kernel answers, and why.
  int refuse(int error, std::string_view why);

  // The devices, QPs and so on that there are; asked of the system once. nullptr after a complaint.
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

// Carries out what the next word abbreviates, the first that fits; without a word `otherwise`. A word that is
// none of them is complained of, and the exit status is 0 all the same, as iproute2's.
int choose(Command& command, const Function& otherwise, Words known, std::string_view what);
// Whether all words have been understood; else the next is complained of, and the exit status is 0 likewise.
bool is_complete(Command& command);

using OnDevice = std::function<int(const control::LinkStatus& device)>;
// `port`: 0 for what belongs to no port.
using OnPort = std::function<int(const control::LinkStatus& device, uint32_t port)>;

// For the device that the next word names, or for all; what they print is one list.
int for_devices(Command& command, const OnDevice& visit);
// The same, but there must be a word.
int for_the_device(Command& command, const OnDevice& visit);
// For "DEV/PORT", for "DEV" all of its ports, or without a word for all. `strict`: ports are counted from 1,
// and a device without a port is not taken.
int for_ports(Command& command, bool strict, const OnPort& visit);

// The words up to a device's name are filters, as in "show qp link rxe0/1 lqpn 17". What is left are the
// name and what follows it, or nothing.
int take_filters(Command& command, std::span<const FilterName> names, Filters& filters);

// What the objects are: dev, link, resource, statistic, system, monitor.
int show_or_change_devices(Command& command);
int show_or_change_links(Command& command);
int show_resources(Command& command);
int show_statistics(Command& command);
int show_or_change_system(Command& command);
int monitor(Command& command);

}  // namespace verbena::commands::rdma
