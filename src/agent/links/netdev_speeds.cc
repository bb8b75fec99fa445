// SPDX-License-Identifier: Apache-2.0
#include "agent/links/netdev_speeds.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::agent {

struct NetdevSpeeds::Look {
  std::vector<LinkTable::SpeedQuestion> questions;
  std::vector<uint32_t> speeds;
};

void NetdevSpeeds::look_and_wait() {
  for (const auto& question : table_.speed_questions()) table_.set_speed(question, ask_(question.netdev));
}

void NetdevSpeeds::look() {
  if (is_looking_) return;
  const auto look = std::make_shared<Look>();
  look->questions = table_.speed_questions();
  if (look->questions.empty()) return;
  const auto ask_all = [look, ask = ask_] {
    for (const auto& question : look->questions) look->speeds.push_back(ask(question.netdev));
  };
  closer_.work_for(::geteuid(), ask_all, [this, look] { end(*look); });
  is_looking_ = true;
}

void NetdevSpeeds::end(const Look& look) {
  is_looking_ = false;
  // Without a thread or memory, the netdev's next news ask again.
  if (look.speeds.size() < look.questions.size()) return;
  bool any = false;
  for (size_t i = 0; i < look.questions.size(); ++i)
    any |= table_.set_speed(look.questions[i], look.speeds[i]);
  if (any || !table_.speed_questions().empty()) changed_();
}

// Uses ethtool(8)'s ioctl. Netlink does not have the speed, and /sys may be another namespace's.
uint32_t NetdevSpeeds::ask_kernel(const std::string& netdev) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ifreq request{};
  if (!socket || netdev.size() >= sizeof request.ifr_name) return 0;
  std::ranges::copy(netdev, request.ifr_name);
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(socket.get(), SIOCETHTOOL, &request) != 0) return 0;
  const uint32_t speed = ethtool_cmd_speed(&settings);
  return speed == static_cast<uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

}  // namespace verbena::agent
