// SPDX-License-Identifier: Apache-2.0
// mckey: sends to a multicast group, or receives from it.
#include <cstdio>

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <poll.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

// Time for a join to take effect in subnet managers and in switches that snoop multicast.
constexpr int kSettleMilliseconds = 3000;

struct Membership {
  std::string group;
  bool unmapped = false;  // the group is a GID, not an IP address
  bool sender = false;
  bool send_only = false;
};

class MulticastTrial final : public Trial {
 public:
  MulticastTrial(Plan plan, Membership membership)
      : Trial("mckey", IBV_QPT_UD, std::move(plan)), membership_(std::move(membership)) {}

 private:
  sockaddr* group() { return reinterpret_cast<sockaddr*>(&group_); }
  sockaddr* source() { return plan_.source.empty() ? nullptr : reinterpret_cast<sockaddr*>(&source_); }

  int perform() override {
    output_.object()["role"] = membership_.sender ? "sender" : "receiver";
    output_.object()["group"] = membership_.group;
    output_.text("%s: starting %s\n", name_, membership_.sender ? "client" : "server");
    if (!plan_.source.empty()) {
      if (const int status = find(plan_.source, source_); status != 0) return status;
    }
    if (const int status = find_group(); status != 0) return status;
    output_.text("%s: joining\n", name_);
    if (const int status = for_each_node([this](Node& node) { return begin(node); }); status != 0) {
      return status;
    }
    int status = serve_until_connected();
    if (status == 0) status = settle();
    if (status == 0) status = transfer();
    return leave(status);
  }

  int find(const std::string& name, sockaddr_storage& address) {
    const int error = find_host(name, address);
    if (error == 0) return 0;
    tell_failure(output_, verbena::format("getaddrinfo failed ({}) - invalid hostname or IP address",
                                          gai_strerror(error)));
    return error;
  }

  int find_group() {
    if (!membership_.unmapped) return find(membership_.group, group_);
    auto* address = reinterpret_cast<sockaddr_ib*>(&group_);
    address->sib_family = AF_IB;
    if (inet_pton(AF_INET6, membership_.group.c_str(), &address->sib_addr) == 1) return 0;
    tell_failure(output_, verbena::format("{}: '{}' is no GID", name_, membership_.group),
                 "a GID is written as an IPv6 address is");
    return -1;
  }

  int begin(Node& node) {
    if (source() != nullptr && rdma_bind_addr(node.id.get(), source()) != 0) {
      return complain_of_call("addr bind failure");
    }
    const int status = membership_.unmapped
                           ? address_resolved(node)
                           : rdma_resolve_addr(node.id.get(), source(), group(), kResolveMilliseconds);
    return status == 0 ? 0 : complain_of_call("resolve addr failure");
  }

  int address_resolved(Node& node) override {
    if (const int status = fits_port(node); status != 0) return status;
    if (const int status = node.prepare(); status != 0) return status;
    if (!membership_.sender) {
      if (const int status = node.post_receives(); status != 0) return status;
    }
    rdma_cm_join_mc_attr_ex wanted = {};
    wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    wanted.addr = group();
    wanted.join_flags =
        membership_.send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
    if (rdma_join_multicast_ex(node.id.get(), &wanted, &node) != 0) {
      return complain_of_call("failure joining");
    }
    return 0;
  }

  int joined(Node& node, const rdma_ud_param& group) override {
    const std::string text = gid_text(group.ah_attr.grh.dgid);
    output_.text("%s: joined dgid: %s mlid 0x%x sl %d\n", name_, text.c_str(), group.ah_attr.dlid,
                 group.ah_attr.sl);
    output_.object()["dgid"] = text;
    return reached(node, group);
  }

  // Waits until the group's membership has taken effect, and reports events meanwhile.
  int settle() {
    const Stopwatch watch;
    while (watch.seconds() * 1000 < kSettleMilliseconds) {
      const int left = kSettleMilliseconds - static_cast<int>(watch.seconds() * 1000);
      pollfd listened = {channel_->fd, POLLIN, 0};
      poll(&listened, 1, left);
      tell_of_events();
    }
    return 0;
  }

  void tell_of_events() {
    const Event event = event_at_hand(channel_.get());
    if (!event) return;
    const bool known =
        event->event == RDMA_CM_EVENT_MULTICAST_ERROR || event->event == RDMA_CM_EVENT_ADDR_CHANGE;
    if (known) {
      tell_failure(output_, verbena::format("{}: event: {}, status: {}", name_, rdma_event_str(event->event),
                                            event->status));
    }
  }

  int transfer() {
    if (plan_.messages == 0) return 0;
    const Stopwatch watch;
    int status = 0;
    if (membership_.sender) {
      output_.text("initiating data transfers\n");
      status = for_each_node([](Node& node) { return node.post_sends(0); });
    } else {
      output_.text("receiving data transfers\n");
      status = await_receives([this] {
        return verbena::format(
            "nobody has sent {} messages to {} yet (messages that are lost do not come again)",
            plan_.messages, membership_.group);
      });
    }
    if (status != 0) return status;
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
    return 0;
  }

  int leave(int status) {
    for (const auto& node : nodes_) {
      if (rdma_leave_multicast(node->id.get(), group()) != 0) {
        status = complain_of_call("failure leaving");
      }
    }
    return status;
  }

  const Membership membership_;
  sockaddr_storage group_ = {};
  sockaddr_storage source_ = {};
};

}  // namespace

int mckey(int argc, char** argv) {
  Plan plan;
  plan.hints.ai_port_space = RDMA_PS_UDP;
  Membership membership;
  bool deaf = false;
  std::vector<Option> options = common_options(plan);
  options.insert(options.end(), {text('m', nullptr, membership.group),
                                 taken('M', nullptr,
                                       [&](const char* word) {
                                         membership.group = word;
                                         membership.unmapped = true;
                                       }),
                                 flag('s', nullptr, membership.sender), port_space_number(plan),
                                 flag('o', nullptr, membership.send_only), flag('l', nullptr, deaf)});
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) return print_usage("mckey", argv[0], letters.next);
  if (membership.unmapped && plan.source.empty()) {
    std::printf("unmapped multicast address requires binding to source address\n");
    return 1;
  }
  plan.json = letters.json;
  plan.hears_itself = !deaf;
  plan.destination = membership.group;
  return MulticastTrial(std::move(plan), std::move(membership)).run();
}

}  // namespace verbena::rdma_core
