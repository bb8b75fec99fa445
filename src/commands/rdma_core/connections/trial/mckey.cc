// SPDX-License-Identifier: Apache-2.0
// mckey: sends to a multicast group, or receives from it.
#include <cstdio>

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <poll.h>

#include "base/format.h"
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

  void perform() override {
    output_.object()["role"] = membership_.sender ? "sender" : "receiver";
    output_.object()["group"] = membership_.group;
    output_.text("%s: starting %s\n", name_, membership_.sender ? "client" : "server");
    if (!plan_.source.empty()) find(plan_.source, source_);
    find_group();
    output_.text("%s: joining\n", name_);
    for (const auto& node : nodes_) begin(*node);
    int status = status_of([this] {
      serve_until_connected();
      settle();
      transfer();
    });
    for (const auto& node : nodes_) {
      if (rdma_leave_multicast(node->id.get(), group()) != 0) status = complain_of_call("failure leaving");
    }
    if (status != 0) throw Failure{status};
  }

  void find(const std::string& name, sockaddr_storage& address) {
    const int error = find_host(name, address);
    if (error == 0) return;
    fail(output_, error,
         verbena::format("getaddrinfo failed ({}) - invalid hostname or IP address", gai_strerror(error)));
  }

  void find_group() {
    if (!membership_.unmapped) return find(membership_.group, group_);
    auto* address = reinterpret_cast<sockaddr_ib*>(&group_);
    address->sib_family = AF_IB;
    if (inet_pton(AF_INET6, membership_.group.c_str(), &address->sib_addr) == 1) return;
    fail(output_, -1, verbena::format("{}: '{}' is no GID", name_, membership_.group),
         "a GID is written as an IPv6 address is");
  }

  void begin(Node& node) {
    if (source() != nullptr && rdma_bind_addr(node.id.get(), source()) != 0) fail_call("addr bind failure");
    const int status = membership_.unmapped
                           ? status_of([&] { address_resolved(node); })
                           : rdma_resolve_addr(node.id.get(), source(), group(), kResolveMilliseconds);
    if (status != 0) fail_call("resolve addr failure");
  }

  void address_resolved(Node& node) override {
    require_port_fits(node);
    node.prepare();
    if (!membership_.sender) node.post_receives();
    rdma_cm_join_mc_attr_ex wanted = {};
    wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    wanted.addr = group();
    wanted.join_flags =
        membership_.send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
    if (rdma_join_multicast_ex(node.id.get(), &wanted, &node) != 0) fail_call("failure joining");
  }

  void joined(Node& node, const rdma_ud_param& group) override {
    const std::string text = gid_text(group.ah_attr.grh.dgid);
    output_.text("%s: joined dgid: %s mlid 0x%x sl %d\n", name_, text.c_str(), group.ah_attr.dlid,
                 group.ah_attr.sl);
    output_.object()["dgid"] = text;
    reached(node, group);
  }

  // Waits until the group's membership has taken effect, and reports events meanwhile.
  void settle() {
    const Stopwatch watch;
    while (watch.seconds() * 1000 < kSettleMilliseconds) {
      const int left = kSettleMilliseconds - static_cast<int>(watch.seconds() * 1000);
      pollfd listened = {channel_->fd, POLLIN, 0};
      poll(&listened, 1, left);
      tell_of_events();
    }
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

  void transfer() {
    if (plan_.messages == 0) return;
    const Stopwatch watch;
    if (membership_.sender) {
      output_.text("initiating data transfers\n");
      send(0);
    } else {
      output_.text("receiving data transfers\n");
      await_receives([this] {
        return verbena::format(
            "nobody has sent {} messages to {} yet (messages that are lost do not come again)",
            plan_.messages, membership_.group);
      });
    }
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
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
