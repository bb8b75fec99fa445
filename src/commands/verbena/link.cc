// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/link_arguments.h"
#include "commands/verbena/report.h"
#include "commands/verbena/status_output.h"
#include "control/client/command_client.h"

namespace verbena::commands {
namespace {

constexpr const char* kLinkExamples =
    "Every network device that is up and has an address gets a link 'rxe_DEV' automatically, lo last.\n"
    "\n"
    "Examples:\n"
    "  verbena link show                        all links; --json for programs\n"
    "  verbena link add rxe0 eth0               call eth0's link rxe0; the same in the words of iproute2:\n"
    "  verbena link add rxe0 type rxe netdev eth0\n"
    "  verbena link del rxe0                    eth0 has no link then until one is added\n"
    "  verbena link set rxe0 peers 192.0.2.0/24 accept RoCE packets from this network only\n"
    "\n"
    "A user changes the links of their own agent, root those of an agent that serves all.\n";

// Calls `request` with a connection to the agent, which it starts if none runs.
template <class Request>
int with_agent(Request request) {
  const auto admin = control::Admin::connect(start_installed_agent());
  return admin ? request(**admin) : report(admin.error());
}

int show(const std::string& name, bool json) {
  return with_agent([&](control::Admin& admin) -> int {
    auto status = admin.status();
    if (!status) return report(status.error());
    if (!name.empty() && !find_link(*status, name)) return kFailed;
    if (!name.empty()) status = only(std::move(*status), {.links = {name}});
    verbena::print("{}", json ? links_as_json(*status) : links_as_text(*status));
    return kDone;
  });
}

// Calls `change`, which returns the agent's answer.
template <class Change>
int change_with_agent(Change change) {
  return with_agent([&](control::Admin& admin) {
    const auto done = change(admin);
    return done ? kDone : report(done.error());
  });
}

constexpr const char* kLinkShowHelp =
    "MTU is the network device's; PATH MTU is the largest that a queue pair on this link can have "
    "(active_mtu).\n"
    "GIDS are index and GID, for programs that want an index: ibv_rc_pingpong -g INDEX, perftest -x INDEX.\n";

void add_link_show(CLI::App& link, int& status) {
  CLI::App* command = link.add_subcommand("show", "Show links: name, network device, state, MTU, GIDs");
  command->alias("list");
  explain(*command, "verbena link show [--json] [NAME]", kLinkShowHelp);
  const auto name = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "only this link");
  command->add_flag("--json", *json, "a JSON array with an object for each link");
  command->callback([name, json, &status] { status = show(*name, *json); });
}

void add_link_add(CLI::App& link, int& status) {
  CLI::App* command = link.add_subcommand("add", "Make a link over a network device, or name the one it has");
  explain(*command, "verbena link add NAME DEV\n       verbena link add NAME type rxe netdev DEV", "");
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("WORDS", *words, "the link's name, and the network device under it");
  command->callback([words, &status] {
    const auto addition = parse_link_addition(*words);
    if (!addition) throw CLI::ValidationError("link add", addition.error());
    status = change_with_agent(
        [&](control::Admin& admin) { return admin.add_link(addition->name, addition->netdev); });
  });
}

void add_link_delete(CLI::App& link, int& status) {
  CLI::App* command = link.add_subcommand("del", "Take a link away");
  command->alias("delete");
  explain(*command, "verbena link del NAME", "");
  const auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "the link")->required();
  command->callback([name, &status] {
    status = change_with_agent([&](control::Admin& admin) { return admin.delete_link(*name); });
  });
}

constexpr const char* kPeersHelp =
    "RoCE packets that come for the link from any other host are dropped by the kernel, unread. At most 20\n"
    "networks or addresses, of IPv4 and IPv6, which replace those set before; 'any' accepts all again. "
    "Packets\n"
    "of other programs of this host are always accepted. It concerns what comes in, not what programs send, "
    "and\n"
    "ends with the link; multicast groups that a program has joined before keep what held then.\n";

void add_link_set(CLI::App& link, int& status) {
  CLI::App* command = link.add_subcommand("set", "Set from which hosts a link accepts packets");
  explain(*command, "verbena link set NAME peers CIDR...\n       verbena link set NAME peers any",
          kPeersHelp);
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("WORDS", *words, "the link's name, 'peers', and the networks whose packets it accepts");
  command->callback([words, &status] {
    const auto setting = parse_peer_setting(*words);
    if (!setting) throw CLI::ValidationError("link set", setting.error());
    status = change_with_agent(
        [&](control::Admin& admin) { return admin.set_peers(setting->name, setting->peers); });
  });
}

}  // namespace

void add_link(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("link", "Show, add, delete and guard RDMA links");
  explain(*command, "verbena link [show|add|del|set] ...", kLinkExamples);
  command->require_subcommand(0, 1);
  command->callback([command, &status] {
    if (command->get_subcommands().empty()) status = show("", false);
  });
  add_link_show(*command, status);
  add_link_add(*command, status);
  add_link_delete(*command, status);
  add_link_set(*command, status);
}

}  // namespace verbena::commands
