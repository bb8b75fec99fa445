// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/format.h"
#include "base/unique_fd.h"
#include "commands/rdma_core/verbs/pingpong/end.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {
namespace {

// The file that identifies the XRC domain of clients on one host, the same as rdma-core's.
constexpr const char* kDomainFile = "/tmp/xrc_domain";

// Attribute masks for RTR and RTS.
constexpr int kReceivesReady = kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kReceives = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
constexpr int kXrcSends = kReceives | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

const std::string kEnd("END\0", 4);

// One end of a pingpong over XRC: one shared receive queue, and for each peer a receiving and a sending queue
// pair. A client has one peer, the server.
class XrcEndpoint : public PingpongEnd {
 public:
  XrcEndpoint(const PingpongProgram& program, const Settings& settings) : PingpongEnd(program, settings) {}

  // Creates all objects, moves the queue pairs to INIT, and posts a receive for each peer.
  void open(ibv_device* device) {
    open_device(device);
    if (settings_.on_demand) {
      const ibv_device_attr_ex attributes = query();
      use_on_demand(attributes, attributes.xrc_odp_caps);
    }
    lid_ = find_lid("Failed to get port info");
    allocate(settings_.size);
    make_domain();
    take(region_, ibv_reg_mr(domain_.get(), buffer_.get(), settings_.size, access_), "Couldn't register MR");
    open_domain();
    make_queues();
    psns_.resize(ends());
    for (size_t i = 0; i < ends(); ++i) make_pair(i);
    try {
      for (size_t i = 0; i < ends(); ++i) post_receive();
    } catch (const Failure&) {
      fail("Couldn't post receives");
    }
  }

  // Returns the address for the peer with this index, with a new random PSN. Call it once, before connect().
  XrcAddress address(size_t index) {
    XrcAddress address;
    address.gid = find_gid();
    check(ibv_get_srq_num(shared_.get(), &address.srqn), "Couldn't get SRQ num");
    psns_[index] = new_psn();
    address.lid = lid_;
    address.receiving_qpn = receiving_[index]->qp_num;
    address.sending_qpn = sending_[index]->qp_num;
    address.psn = psns_[index];
    return address;
  }

  // Moves the queue pairs for the peer with this index to RTS.
  void connect(size_t index, const XrcAddress& remote) {
    make_ready(receiving_[index].get(), verbena::format("recv QP[{}]", index),
               {remote.lid, remote.gid, remote.sending_qpn, remote.psn}, psns_[index], kReceivesReady,
               kReceives);
    make_ready(sending_[index].get(), verbena::format("send QP[{}]", index),
               {remote.lid, remote.gid, remote.receiving_qpn, remote.psn}, psns_[index], kConnected,
               kXrcSends);
  }

  // Sends to the peer `remote` through the sending queue pair with this index. `last` marks the last send to
  // this peer; only that send is signaled.
  void post_send(const XrcAddress& remote, size_t queue_pair, bool last) {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    request.send_flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
    request.qp_type.xrc.remote_srqn = remote.srqn;
    check(rdma_core::post_send(sending_[queue_pair].get(), piece(), request), "Couldn't post send");
  }

  void post_receive() {
    check(rdma_core::post_receive(shared_.get(), piece()), "Failed to post receive to SRQ");
  }

  // Polls once for a received message. Returns the index of its sender, or nullopt if none came.
  std::optional<size_t> poll_received() {
    ibv_wc completion = {};
    if (!poll(completions_.get(), completion)) return std::nullopt;
    if (ends() == 1) return 0;  // the server's messages may come through other clients' queue pairs
    for (size_t from = 0; from < ends(); ++from) {
      if (receiving_[from]->qp_num == completion.qp_num) return from;
    }
    fail(verbena::format("Unable to find qp {:x}", completion.qp_num));
  }

  // Busy-polls the send CQ until the last send to each peer, the only signaled one, has completed.
  void await_sent() {
    for (size_t done = 0; done < ends();) {
      ibv_wc completion = {};
      if (poll(sent_.get(), completion)) ++done;
    }
  }

  // Destroys all objects.
  void close() {
    acknowledge_events();
    for (size_t i = 0; i < ends(); ++i) {
      destroy(sending_[i], ibv_destroy_qp, verbena::format("Couldn't destroy INI QP[{}]", i));
      destroy(receiving_[i], ibv_destroy_qp, verbena::format("Couldn't destroy TGT QP[{}]", i));
    }
    destroy(shared_, ibv_destroy_srq, "Couldn't destroy SRQ");
    destroy(xrc_domain_, close_xrc_domain, "Couldn't close the XRC Domain");
    destroy(sent_, ibv_destroy_cq, "Couldn't destroy send CQ");
    destroy(completions_, ibv_destroy_cq, "Couldn't destroy recv CQ");
    destroy(region_, ibv_dereg_mr, "Couldn't deregister MR");
    close_device();
  }

 private:
  void open_domain() {
    file_.reset(::open(kDomainFile, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IRGRP));
    if (!file_) {
      complain(verbena::format("Couldn't create the file for the XRC Domain but not stopping {}", errno),
               verbena::format("{}: {}; one client of this host works, several do not", kDomainFile,
                               std::strerror(errno)));
    }
    ibv_xrcd_init_attr attributes = {};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = file_.get();
    attributes.oflags = O_CREAT;
    xrc_domain_.reset(ibv_open_xrcd(context_.get(), &attributes));
    if (!xrc_domain_) {
      fail(verbena::format("Couldn't Open the XRC Domain {}", errno), std::strerror(errno));
    }
  }

  void make_queues() {
    const int entries = static_cast<int>(ends());
    take(completions_, ibv_create_cq(context_.get(), entries, nullptr, channel_.get(), 0),
         "Couldn't create recv CQ");
    if (settings_.events) ask_for_event();
    take(sent_, ibv_create_cq(context_.get(), entries, nullptr, nullptr, 0), "Couldn't create send CQ");

    ibv_srq_init_attr_ex attributes = {};
    attributes.attr.max_wr = static_cast<uint32_t>(ends());
    attributes.attr.max_sge = 1;
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.xrcd = xrc_domain_.get();
    attributes.cq = completions_.get();
    attributes.pd = domain_.get();
    take(shared_, ibv_create_srq_ex(context_.get(), &attributes), "Couldn't create SRQ");
  }

  void make_pair(size_t index) {
    ibv_qp_init_attr_ex wanted = {};
    wanted.qp_type = IBV_QPT_XRC_RECV;
    wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    wanted.xrcd = xrc_domain_.get();
    initialize(make_queue_pair(receiving_, wanted, "recv", index), verbena::format("recv QP[{}]", index),
               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    wanted = {};
    wanted.qp_type = IBV_QPT_XRC_SEND;
    wanted.send_cq = sent_.get();
    wanted.cap.max_send_wr = settings_.clients * settings_.iterations;
    wanted.cap.max_send_sge = 1;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = domain_.get();
    initialize(make_queue_pair(sending_, wanted, "send", index), verbena::format("send QP[{}]", index));
  }

  ibv_qp* make_queue_pair(std::vector<QueuePair>& queue_pairs, ibv_qp_init_attr_ex& wanted, const char* which,
                          size_t index) {
    queue_pairs.emplace_back(ibv_create_qp_ex(context_.get(), &wanted));
    if (queue_pairs.back()) return queue_pairs.back().get();
    fail(verbena::format("Couldn't create {} QP[{}] errno {}", which, index, errno), std::strerror(errno));
  }

  // Polls a CQ once. Returns whether there was a completion.
  static bool poll(ibv_cq* queue, ibv_wc& completion) {
    const int count = ibv_poll_cq(queue, 1, &completion);
    if (count < 0) fail(verbena::format("Error polling cq {}", count));
    if (count > 0 && completion.status != IBV_WC_SUCCESS) {
      fail(verbena::format("Work completion error {}", static_cast<int>(completion.status)),
           ibv_wc_status_str(completion.status));
    }
    return count > 0;
  }

  ibv_sge piece() const {
    return {reinterpret_cast<uintptr_t>(buffer_.get()), settings_.size, region_->lkey};
  }

  // Returns the number of peers: Settings::clients, which is 1 for a client.
  size_t ends() const { return settings_.clients; }

  uint32_t lid_ = 0;
  std::vector<uint32_t> psns_;

  Region region_;
  UniqueFd file_;  // its inode identifies the XRC domain
  XrcDomain xrc_domain_;
  CompletionQueue sent_;
  SharedQueue shared_;
  std::vector<QueuePair> receiving_;
  std::vector<QueuePair> sending_;
};

// A peer: its TCP connection, its address, and the number of messages sent to it.
struct Peer {
  UniqueFd connection;
  XrcAddress address;
  unsigned sent = 0;
};

class XrcGame {
 public:
  XrcGame(const PingpongProgram& program, const Settings& settings, XrcEndpoint& endpoint, Output& output)
      : program_(program), settings_(settings), endpoint_(endpoint), output_(output) {}

  void connect() {
    if (!settings_.serves()) {
      Peer server{connect_to(settings_.server, settings_.tcp_port), {}};
      tell_address(server, 0);
      hear_address(server, 0);
      return add(std::move(server));
    }
    const UniqueFd listening = listen_on(settings_.tcp_port, static_cast<int>(settings_.clients));
    for (size_t i = 0; i < settings_.clients; ++i) {
      Peer client{accept_on(listening, verbena::format(" for client {}", i)), {}};
      hear_address(client, i);
      tell_address(client, i);
      add(std::move(client));
    }
  }

  void play() {
    if (settings_.serves()) {
      for (size_t i = 0; i < peers_.size(); ++i) send(i);
    }
    const size_t total = static_cast<size_t>(settings_.clients) * settings_.iterations;
    for (size_t received = 0; received < total;) {
      if (settings_.events) endpoint_.await_event();
      // Handle all received messages and reply to each.
      while (const auto from = endpoint_.poll_received()) {
        ++received;
        endpoint_.post_receive();
        if (peers_[*from].sent < settings_.iterations) send(*from);
      }
    }
    endpoint_.await_sent();
  }

  // Waits until all ends have received everything, before any destroys its queues: the server's messages to a
  // client may come through another client's queue pair.
  void agree_to_end() {
    if (settings_.serves()) hear_ends();
    for (const Peer& peer : peers_) {
      if (!write_all(peer.connection, kEnd)) fail_of(errno, "Couldn't send termination ack");
    }
    if (!settings_.serves()) hear_ends();
  }

 private:
  void add(Peer peer) {
    peers_.push_back(std::move(peer));
    endpoint_.connect(peers_.size() - 1, peers_.back().address);
  }

  void tell_address(const Peer& peer, size_t index) {
    const XrcAddress address = endpoint_.address(index);
    print("local", address);
    if (!write_all(peer.connection, address.encoded())) fail_of(errno, "Couldn't send local address");
  }

  void hear_address(Peer& peer, size_t index) {
    std::string message;
    if (!read_exactly(peer.connection, XrcAddress::kLength, message)) {
      complain(verbena::format("client read: {}", reason(errno)));
      fail(verbena::format("{}/{}: Couldn't read remote address [{}]", message.size(), XrcAddress::kLength,
                           index));
    }
    const auto address = XrcAddress::decode(message);
    if (!address) fail_for_strange_address(program_);
    peer.address = *address;
    print("remote", peer.address);
  }

  void print(const char* whose, const XrcAddress& address) {
    const std::string gid = gid_text(address.gid);
    output_.text("%8s: LID %04x, QPN RECV %06x SEND %06x, PSN %06x, SRQN %06x, GID %s\n", whose, address.lid,
                 address.receiving_qpn, address.sending_qpn, address.psn, address.srqn, gid.c_str());
    output_.object()[whose].push_back({{"lid", address.lid},
                                       {"receiving_qpn", address.receiving_qpn},
                                       {"sending_qpn", address.sending_qpn},
                                       {"psn", address.psn},
                                       {"srqn", address.srqn},
                                       {"gid", gid}});
    std::fflush(stdout);  // shows a reader of the pipe the progress
  }

  // Sends through the queue pairs of all peers in turn; signals the last send.
  void send(size_t index) {
    Peer& peer = peers_[index];
    const size_t queue_pair = (index + peer.sent) % peers_.size();
    ++peer.sent;
    endpoint_.post_send(peer.address, queue_pair, peer.sent >= settings_.iterations);
  }

  void hear_ends() {
    for (const Peer& peer : peers_) {
      std::string message;
      if (!read_exactly(peer.connection, kEnd.size(), message)) {
        complain(verbena::format("client read: {}", reason(errno)));
        fail(verbena::format("{}/{}: Couldn't read remote termination ack", message.size(), kEnd.size()));
      }
      if (message != kEnd) fail("Invalid termination ack was accepted");
    }
  }

  const PingpongProgram& program_;
  const Settings& settings_;
  XrcEndpoint& endpoint_;
  Output& output_;
  std::vector<Peer> peers_;
};

}  // namespace

void play_over_xrc(const PingpongProgram& program, const Settings& settings, ibv_device* device,
                   Output& output) {
  XrcEndpoint endpoint(program, settings);
  XrcGame game(program, settings, endpoint, output);
  endpoint.open(device);
  game.connect();
  const auto start = std::chrono::steady_clock::now();
  game.play();
  output.object()["clients"] = settings.clients;
  add_figures(settings, std::chrono::steady_clock::now() - start, output);
  game.agree_to_end();
  endpoint.close();
  output.text("success\n");
}

}  // namespace verbena::rdma_core
