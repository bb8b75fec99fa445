// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include "management/cm/captured_mads.h"
#include "management/cm/manager.h"

namespace verbena::cm {
namespace {

// Plays one end of a captured conversation with a Manager. It gets the messages that the other end sent, and
// calls where the captured end's application must have made them. It has to send the same bytes. Values drawn
// at random (IDs, PSNs) and choices of the application are taken from the capture.
class Player : public Sink, public Handler {
 public:
  Player(std::string file, const roce::Address& self) : file_(std::move(file)), self_(self) {}

  void play() {
    draw_same_ids();
    for (const CapturedMad& captured : captured_mads(file_)) {
      SCOPED_TRACE(captured.where);
      now_ += std::chrono::milliseconds(2);
      if (captured.arrival.path.source == self_) {
        send_like(captured);
      } else {
        manager_->on_mad(captured.mad, captured.arrival, now_);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(sent_.empty()) << "more was sent than the kernel sent";
    const Counters& counters = manager_->counters();
    for (size_t reason = 0; reason < kDropReasons; ++reason) {
      EXPECT_EQ(counters.dropped[reason], 0u) << drop_reason_name(static_cast<DropReason>(reason));
    }
  }

  Manager& manager() { return *manager_; }
  int events = 0;

  void send(const Mad& mad, const roce::Path& path) override {
    EXPECT_EQ(path.source, self_);
    sent_.push_back(mad);
  }

  Admission admit(const Req&, const Arrival&) override {
    return file_ == "cm_reject_nolistener.pcap" ? Admission::refuse(RejReason::kInvalidServiceId)
                                                : Admission::admit(0);
  }
  Admission admit(const SidrReq&, const Arrival&) override { return Admission::admit(0); }
  void on_request(LocalId id, uint64_t, const Req& req, const Arrival&) override {
    by_remote_id_[req.local_id] = id;
    ++events;
  }
  void on_reply(LocalId, uint64_t, const Rep&) override { ++events; }
  void on_ready(LocalId, uint64_t, const Rtu&) override { ++events; }
  void on_rejected(LocalId, uint64_t, const Rej& rej) override {
    EXPECT_TRUE(rej.is(RejReason::kInvalidServiceId));
    ++events;
  }
  void on_unreachable(LocalId, uint64_t, MessageType) override { ADD_FAILURE(); }
  void on_delay(LocalId, uint64_t, const Mra&) override { ADD_FAILURE(); }
  void on_disconnect_request(LocalId, uint64_t, const Dreq&) override { ++events; }
  void on_disconnected(LocalId, uint64_t, const Drep* drep) override {
    EXPECT_NE(drep, nullptr);
    ++events;
  }
  void on_time_wait_exit(LocalId, uint64_t) override { ADD_FAILURE(); }
  void on_sidr_request(LocalId id, uint64_t, const SidrReq& req, const Arrival&) override {
    by_remote_id_[req.request_id] = id;
    ++events;
  }
  void on_sidr_reply(LocalId, uint64_t, const SidrRep& rep) override {
    EXPECT_EQ(rep.qpn, 0x45u);
    EXPECT_EQ(rep.qkey, 0x01234567u);
    ++events;
  }

 private:
  // The IDs of this end in the order in which the kernel drew them (a counter XORed with one mask).
  std::vector<LocalId> captured_ids() const {
    std::vector<LocalId> ids;
    for (const CapturedMad& captured : captured_mads(file_)) {
      if (captured.arrival.path.source != self_) continue;
      const auto type = decode_header(captured.mad)->type;
      const bool draws =
          type == MessageType::kReq || type == MessageType::kRep || type == MessageType::kSidrReq;
      if (draws) ids.push_back(load_be<uint32_t>(&captured.mad[kMadHeaderBytes]));
    }
    return ids;
  }

  void draw_same_ids() {
    const std::vector<LocalId> ids = captured_ids();
    ManagerConfig config;
    uint32_t drawn_before = 0;
    if (!ids.empty()) {
      const uint32_t first = byteswap(ids[0]);
      while (ids.size() > 1 && byteswap(ids[1]) != (first ^ drawn_before ^ (drawn_before + 1))) {
        ASSERT_LT(++drawn_before, 16u);
      }
      config.id_mask = first ^ drawn_before;
    }
    manager_.emplace(config, *this, *this, Random(1));
    for (; drawn_before > 0; --drawn_before) {
      ConnectRequest other;
      other.path.source = self_;
      const auto id = manager_->connect(other, 0, now_);
      ASSERT_TRUE(id && manager_->forget(*id));
      sent_.clear();
    }
  }

  void send_like(const CapturedMad& captured) {
    operate(captured.mad);
    ASSERT_FALSE(sent_.empty()) << "nothing was sent";
    const Mad mad = sent_.front();
    sent_.pop_front();
    for (size_t at = 0; at < kMadBytes; ++at) {
      ASSERT_EQ(mad.bytes[at], captured.mad[at]) << "byte " << at;
    }
  }

  void operate(ConstBytes mad) {
    switch (decode_header(mad)->type) {
      case MessageType::kReq:
        return connect(*decode<Req>(mad));
      case MessageType::kRep:
        return reply(*decode<Rep>(mad));
      case MessageType::kRtu:
        ASSERT_TRUE(manager_->ready(decode<Rtu>(mad)->local_id, {}, now_));
        return;
      case MessageType::kDreq:
        ASSERT_TRUE(manager_->disconnect(decode<Dreq>(mad)->local_id, {}, now_));
        return;
      case MessageType::kDrep:
        ASSERT_TRUE(manager_->confirm_disconnect(decode<Drep>(mad)->local_id, {}, now_));
        return;
      case MessageType::kSidrReq:
        return sidr_request(*decode<SidrReq>(mad));
      case MessageType::kSidrRep:
        return sidr_reply(*decode<SidrRep>(mad));
      case MessageType::kRej:  // sent by admission
        return;
      default:
        FAIL();
    }
  }

  void connect(const Req& like) {
    ConnectRequest request;
    request.path.source = like.primary.local_gid;
    request.path.destination = like.primary.remote_gid;
    request.path.flow_label = like.primary.flow_label;
    request.service_id = like.service_id;
    request.local_ca_guid = like.local_ca_guid;
    request.parameters.qpn = like.local_qpn;
    request.starting_psn = like.starting_psn;
    request.parameters.responder_resources = like.responder_resources;
    request.parameters.initiator_depth = like.initiator_depth;
    request.parameters.retry_count = like.retry_count;
    request.parameters.rnr_retry_count = like.rnr_retry_count;
    ASSERT_TRUE(request.parameters.set_data(std::as_bytes(std::span(like.private_data))));
    ASSERT_TRUE(manager_->connect(request, 0, now_));
  }

  void reply(const Rep& like) {
    ConnectReply request;
    request.local_ca_guid = like.local_ca_guid;
    request.parameters.qpn = like.local_qpn;
    request.starting_psn = like.starting_psn;
    request.parameters.responder_resources = like.responder_resources;
    request.parameters.initiator_depth = like.initiator_depth;
    request.parameters.rnr_retry_count = like.rnr_retry_count;
    ASSERT_TRUE(manager_->reply(by_remote_id_.at(like.remote_id), request, now_));
  }

  void sidr_request(const SidrReq& like) {
    SidrRequest request;
    request.path.source = self_;
    for (const CapturedMad& captured : captured_mads(file_)) {
      if (captured.arrival.path.source == self_) request.path.destination = captured.arrival.path.destination;
    }
    request.service_id = like.service_id;
    ASSERT_TRUE(request.parameters.set_data(std::as_bytes(std::span(like.private_data))));
    ASSERT_TRUE(manager_->sidr_request(request, 0, now_));
  }

  void sidr_reply(const SidrRep& like) {
    SidrReply request;
    request.parameters.qpn = like.qpn;
    request.parameters.qkey = like.qkey;
    ASSERT_TRUE(manager_->sidr_reply(by_remote_id_.at(like.request_id), request, now_));
  }

  const std::string file_;
  const roce::Address self_;
  TimePoint now_{};
  std::optional<Manager> manager_;
  std::deque<Mad> sent_;
  std::map<uint32_t, LocalId> by_remote_id_;
};

class CaptureReplay : public ::testing::TestWithParam<const char*> {};

TEST_P(CaptureReplay, FindsOurActiveSideSayingWhatTheKernelSaid) {
  const CapturedMad first = captured_mads(GetParam()).front();
  Player player(GetParam(), first.arrival.path.source);
  player.play();
  EXPECT_GT(player.events, 0);
}

TEST_P(CaptureReplay, FindsOurPassiveSideSayingWhatTheKernelSaid) {
  const CapturedMad first = captured_mads(GetParam()).front();
  Player player(GetParam(), first.arrival.path.destination);
  player.play();
}

INSTANTIATE_TEST_SUITE_P(Of, CaptureReplay,
                         ::testing::Values("cm_rping.pcap", "cm_rping_ipv6.pcap", "cm_ucmatose.pcap",
                                           "cm_udaddy_sidr.pcap", "cm_reject_nolistener.pcap"),
                         [](const auto& of) {
                           const std::string file = of.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace verbena::cm
