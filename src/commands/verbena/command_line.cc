// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/report.h"

namespace verbena::commands {

using namespace command_line;

namespace {

constexpr const char* kDescription =
    "RDMA without RDMA hardware: programs written for libibverbs and librdmacm run unmodified,\n"
    "on one host or, over RoCEv2 (UDP port 4791), between hosts. No root, no kernel module.\n";

constexpr const char* kVerbenaExamples =
    "A first run, in two terminals of one machine:\n"
    "  verbena run ib_write_bw                  the server\n"
    "  verbena run ib_write_bw 127.0.0.1        the client\n"
    "\n"
    "What there is:\n"
    "  verbena link show                        the RDMA links and the network devices under them\n"
    "  verbena status                           links, processes; -v: GIDs, queue pairs, counters\n"
    "  verbena top                              the same live: rates, retransmissions, waiting work\n"
    "  verbena metrics                          the same numbers for Prometheus\n"
    "  verbena capture FILE                     what goes by memory, as packets for Wireshark\n"
    "  verbena trace PID                        what has happened to a program's queue pairs, also of one "
    "that died\n"
    "  verbena doctor                           what keeps programs from working here, and what to do\n"
    "  verbena explain RETRY_EXC_ERR            what a status, an event or an errno means\n"
    "  verbena rdma ...                         iproute2's rdma: link, dev, resource, statistic\n"
    "\n"
    "Programs:\n"
    "  ibv_devices               Ours of rdma-core's, for hosts without them, and each with --json\n"
    "  ibv_devinfo               What devices and ports say of themselves\n"
    "  ibv_asyncwatch            The asynchronous events of a device\n"
    "  ibv_rc_pingpong           Messages there and back over RC: a server, or with its host a client\n"
    "  ibv_uc_pingpong           Likewise over UC\n"
    "  ibv_ud_pingpong           Likewise over UD\n"
    "  ibv_srq_pingpong          Likewise over RC, with a shared receive queue\n"
    "  ibv_xsrq_pingpong         Likewise over XRC, with several clients\n"
    "  rping                     Pings by RDMA READ and WRITE\n"
    "  ucmatose                  Many connections with messages both ways\n"
    "  udaddy                    Datagrams between queue pairs that are introduced by address\n"
    "  mckey                     A sender and receivers of a multicast group\n"
    "  cmtime                    How long each step of connecting takes\n"
    "  rdma_client               A message there and one back\n"
    "  rdma_server               Its other end\n"
    "  rdma_xclient              A message by RC or XRC\n"
    "  rdma_xserver              Its other end\n"
    "  perf                      Latency and bandwidth, compatible with perftest: verbena perf ib_send_lat\n"
    "\n"
    "'verbena help COMMAND' tells more. Exit status: 0 done, 1 could not be done, 2 wrong usage.\n"
    "VERBENA_LOG=info (or debug) in the environment makes libraries and agent tell what they do.\n";

// Reports a wrong command line, and the help that explains the right one. Returns kUsage.
int complain_of_usage(const std::string& what, const std::string& command) {
  complain("{}\nTry '{} --help'.", what, command);
  return kUsage;
}

// Reports a failed write to standard output, by errno. Returns kFailed.
int complain_of_output() {
  return complain("cannot write the answer to standard output: {}", std::strerror(errno));
}

// Adds `help` to the list of commands. words_for_help() handles it.
void add_help(CLI::App& verbena) {
  CLI::App* command = verbena.add_subcommand("help", "Explain a command");
  explain(*command, "verbena help [COMMAND...]", "The same as 'verbena COMMAND --help'.\n");
}

}  // namespace

int run_command_line(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const bool wants_help = !arguments.empty() && arguments.front() == "help" &&
                          (arguments.size() == 1 || !arguments[1].starts_with('-'));
  if (const std::optional<int> not_run = run_own_program(
          wants_help && arguments.size() > 1 ? std::vector<std::string>{arguments[1], "--help"}
                                             : arguments)) {
    return *not_run;
  }

  CLI::App verbena(kDescription, "verbena");
  explain(verbena, "verbena COMMAND [OPTION...]", kVerbenaExamples);
  verbena.require_subcommand(1);
  verbena.option_defaults()->disable_flag_override();  // the subcommands inherit it
  verbena.set_version_flag("--version", "verbena " VERBENA_VERSION);

  int status = kDone;
  Words words;
  add_run(verbena, words.program, status);
  for (const auto add : {add_link, add_status, add_capture, add_agent, add_doctor, add_explain, add_system,
                         add_metrics, add_top, add_trace}) {
    add(verbena, status);
  }
  add_help(verbena);
  words = cut_words(wants_help ? words_for_help(verbena, arguments) : std::move(arguments));
  if (const auto wrong = unknown_command(verbena, words.ours)) {
    return complain_of_usage(wrong->what, wrong->within);
  }
  try {
    std::reverse(words.ours.begin(), words.ours.end());  // CLI11 takes them in reverse order
    verbena.parse(std::move(words.ours));
  } catch (const CLI::Success& asked_for_text) {  // --help, --version
    const int done = verbena.exit(asked_for_text);
    return std::cout.flush() ? done : complain_of_output();
  } catch (const CLI::ParseError& error) {
    return complain_of_usage(what_is_wrong(verbena, error), reached(verbena));
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return complain_of_output();
    return complain("{}", error.what());
  }
  if (std::fflush(stdout) != 0 && status == kDone) return complain_of_output();
  return status;
}

}  // namespace verbena::commands
