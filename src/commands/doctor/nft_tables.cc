// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/nft_tables.h"

#include <array>
#include <cerrno>
#include <fstream>

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include "commands/doctor/mnl_socket.h"

namespace verbena::commands::doctor {
namespace {

int on_table(const nlmsghdr*, void* count) {
  ++*static_cast<size_t*>(count);
  return MNL_CB_OK;
}

}  // namespace

Result<size_t> count_nft_tables() {
  const MnlSocket socket(mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC));
  if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) return fail(errno);
  alignas(nlmsghdr) std::array<char, 256> room{};
  nlmsghdr* request = mnl_nlmsg_put_header(room.data());
  request->nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETTABLE;
  request->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request->nlmsg_seq = 1;
  static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(nfgenmsg)))->nfgen_family = AF_UNSPEC;
  if (mnl_socket_sendto(socket.get(), request, request->nlmsg_len) < 0) return fail(errno);
  size_t tables = 0;
  std::array<char, 32 << 10> buffer;
  for (;;) {
    const ssize_t count = mnl_socket_recvfrom(socket.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(errno);
    const int more = mnl_cb_run(buffer.data(), static_cast<size_t>(count), 1,
                                mnl_socket_get_portid(socket.get()), on_table, &tables);
    if (more < 0) return fail(errno);
    if (more == 0) return tables;
  }
}

bool has_legacy_tables(const std::string& family) {
  std::ifstream names("/proc/net/" + family + "_tables_names");
  std::string name;
  return static_cast<bool>(names >> name);
}

}  // namespace verbena::commands::doctor
