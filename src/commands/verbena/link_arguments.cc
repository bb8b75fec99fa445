// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/link_arguments.h"

#include "base/format.h"

namespace verbena::commands {
namespace {

constexpr std::string_view kForms =
    "'verbena link add NAME DEV' or 'verbena link add NAME type rxe netdev DEV'";
constexpr std::string_view kPeerForms =
    "'verbena link set NAME peers 192.0.2.0/24 fd00::/8' or 'verbena link set NAME peers any'";

tl::unexpected<std::string> wrong(std::string_view what, std::string_view forms = kForms) {
  return tl::unexpected<std::string>(verbena::format("{}; it is {}", what, forms));
}

// Parses the words after the name as pairs of keyword and value.
tl::expected<LinkAddition, std::string> parse_keywords(LinkAddition addition,
                                                       const std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size(); i += 2) {
    const std::string& keyword = words[i];
    if (keyword != "type" && keyword != "netdev") {
      return wrong(verbena::format("'{}' is neither 'type' nor 'netdev'", keyword));
    }
    if (i + 1 == words.size()) return wrong(verbena::format("nothing follows '{}'", keyword));
    const std::string& value = words[i + 1];
    if (keyword == "netdev") {
      if (!addition.netdev.empty()) return wrong("'netdev' is there twice");
      addition.netdev = value;
    } else if (value != "rxe") {
      return wrong(verbena::format("there is no link type '{}', only 'rxe'", value));
    }
  }
  if (addition.netdev.empty()) return wrong("the network device is missing");
  return addition;
}

}  // namespace

tl::expected<LinkAddition, std::string> parse_link_addition(const std::vector<std::string>& words) {
  if (words.empty()) return wrong("name and network device are missing");
  LinkAddition addition{words[0], ""};
  if (words.size() == 2 && words[1] != "type" && words[1] != "netdev") {
    addition.netdev = words[1];
    return addition;
  }
  return parse_keywords(std::move(addition), words);
}

tl::expected<PeerSetting, std::string> parse_peer_setting(const std::vector<std::string>& words) {
  if (words.empty()) return wrong("the link's name is missing", kPeerForms);
  if (words.size() < 2) return wrong("'peers' is missing", kPeerForms);
  if (words[1] != "peers")
    return wrong(verbena::format("'{}' cannot be set, only 'peers'", words[1]), kPeerForms);
  if (words.size() == 2) return wrong("nothing follows 'peers'", kPeerForms);
  PeerSetting setting{words[0], {}};
  if (words.size() == 3 && words[2] == "any") return setting;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto peer = roce::parse_prefix(words[i]);
    if (!peer) return wrong(verbena::format("'{}' is no address and no network", words[i]), kPeerForms);
    setting.peers.push_back(*peer);
  }
  return setting;
}

}  // namespace verbena::commands
