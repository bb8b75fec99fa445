// SPDX-License-Identifier: Apache-2.0
// Replays captures of two Linux kernels with our RC requester or responder in the place of one of them. Ours
// gets what the other kernel sent, and must send what its own kernel sent, byte for byte.
//
// The captures and the output of the programs lie in tests/wire/roce/captures and
// tests/adapter/transport/captures.
#include <cinttypes>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "base/format.h"
#include "wire/roce/aeth.h"
#include "wire/roce/capture.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kRegionBytes = 65536;
constexpr uint32_t kReceiveOffset = 32768;  // offset of the programs' receive buffer
constexpr uint8_t kRnrTimer = 12;
constexpr uint8_t kReadAtomics = 4;

// The values that a program printed for its side at the start.
struct Side {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint64_t address = 0;
  uint32_t rkey = 0;
};
// An operation, printed as "op 4 len 8192 {'roff': 4096, 'imm': 5}".
struct Operation {
  ibv_wr_opcode opcode{};
  uint32_t length = 0;
  std::string arguments;

  uint64_t argument(const std::string& name, uint64_t otherwise) const {
    std::smatch match;
    return std::regex_search(arguments, match, std::regex("'" + name + "': (\\d+)")) ? std::stoull(match[1])
                                                                                     : otherwise;
  }
};

struct Capture {
  std::string name;
  Side client, server;
  std::vector<Operation> operations;
  std::vector<uint64_t> client_statuses;  // statuses of the client's completions
  std::vector<const roce::CapturedPacket*> packets;
  uint32_t mtu = 1024;
  roce::Address client_address, server_address;

  static Capture load(const std::string& name) {
    Capture c;
    c.name = name;
    c.mtu = name.ends_with("mtu4096") ? 4096 : 1024;
    std::ifstream file(std::filesystem::path(VERBENA_CAPTURE_FACTS) / (name + ".client.txt"));
    EXPECT_TRUE(file) << name;
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_search(line, match,
                            std::regex("^(local|remote) .*'qpn': (\\d+), 'psn': (\\d+), .*'addr': "
                                       "(\\d+), 'rkey': (\\d+)"))) {
        (match[1] == "local" ? c.client : c.server) =
            Side{static_cast<uint32_t>(std::stoul(match[2])), static_cast<uint32_t>(std::stoul(match[3])),
                 std::stoull(match[4]), static_cast<uint32_t>(std::stoul(match[5]))};
      } else if (std::regex_search(line, match, std::regex("^op (\\d+) len (\\d+) (.*)"))) {
        c.operations.push_back({static_cast<ibv_wr_opcode>(std::stoi(match[1])),
                                static_cast<uint32_t>(std::stoul(match[2])), match[3]});
      } else if (std::regex_search(line, match, std::regex("wc wr_id \\d+ status (\\d+)"))) {
        c.client_statuses.push_back(std::stoull(match[1]));
      }
    }
    for (const roce::CapturedPacket& packet : roce::captured_packets()) {
      if (packet.where.starts_with(name + ".pcap ")) c.packets.push_back(&packet);
    }
    EXPECT_FALSE(c.packets.empty()) << name;
    for (const roce::CapturedPacket* packet : c.packets) {
      if (!is_request(*packet)) continue;
      c.client_address = address(packet->flow, packet->flow.source);
      c.server_address = address(packet->flow, packet->flow.destination);
    }
    return c;
  }

  static roce::Packet parse(const roce::CapturedPacket& packet) { return *roce::parse(packet.udp_payload()); }
  static bool is_request(const roce::CapturedPacket& packet) {
    return parse(packet).headers.info().is_request;
  }
  static roce::Address address(const roce::IcrcFlow& flow, const std::array<uint8_t, 16>& bytes) {
    if (flow.ipv6) return {bytes};
    return roce::Address::from_ipv4(bytes.data());
  }
};

// A packet without its ICRC, as text: two packets are compared as text, and printed when they differ.
std::string describe(const roce::Headers& headers, ConstBytes payload) {
  std::byte bytes[roce::kMaxHeaderBytes];
  const uint32_t length = roce::encode(headers, bytes);
  std::string text = verbena::format("{} psn {} | ", headers.info().name, headers.psn.value());
  for (const std::byte b : std::span(bytes).first(length))
    text += verbena::format("{:02x}", static_cast<unsigned>(b));
  text += " | ";
  for (const std::byte b : payload) text += verbena::format("{:02x}", static_cast<unsigned>(b));
  return text;
}
std::string describe(const SentPacket& packet) {
  return describe(packet.headers, packet.payload);
}
std::string describe(const roce::CapturedPacket& packet) {
  const roce::Packet parsed = Capture::parse(packet);
  return describe(parsed.headers, parsed.payload);
}

class CaptureReplay : public testing::TestWithParam<const char*> {
 protected:
  CaptureReplay() : capture(Capture::load(GetParam())) {
    // Fills the region with the pattern that both programs begin with.
    for (uint32_t i = 0; i < 16384; ++i) region.data()[i] = static_cast<std::byte>((i * 7 + (i >> 8)) & 255);
  }

  // Gives our endpoint the attributes of one of the two sides.
  void become(const Side& self, const Side& peer, const roce::Address& own, const roce::Address& other) {
    region.region().iova = self.address;
    region.region().publish();
    QpAttributes& a = e.attributes();
    a.path = path_between(own, other);
    a.destination = roce::Qpn(peer.qpn);
    a.path_mtu = capture.mtu;
    a.send_psn = roce::Psn(self.psn);
    a.receive_psn = roce::Psn(peer.psn);
    a.max_rd_atomic = a.max_dest_rd_atomic = kReadAtomics;
    a.min_rnr_timer = kRnrTimer;
    a.timeout = 16;
    a.retry_count = a.rnr_retry = 7;
    e.bring_up();
  }
  void post_receive(uint32_t length) {
    ibv_sge sge = region.sge(kReceiveOffset, length);
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(*e.qp, wr));
  }

  // Feeds a recorded packet to our endpoint, with our region's key in place of the recorded one.
  void feed(const roce::CapturedPacket& recorded) {
    roce::Packet packet = Capture::parse(recorded);
    if (packet.headers.rkey == capture.server.rkey) packet.headers.rkey = region.key();
    e.receive(packet.headers, packet.payload);
  }

  Capture capture;
  Endpoint<RcQueuePair> e{{.repairs = false}};  // as the kernel, which keeps no early packets
  Buffer& region = e.memory.add(kRegionBytes);
};

// ---- our responder in the place of the server

class ResponderReplay : public CaptureReplay {
 protected:
  void SetUp() override {
    become(capture.server, capture.client, capture.server_address, capture.client_address);
    if (capture.name == "rc_atomic") region.word(0) = 0x1122334455667788;
    if (capture.name == "rc_nak_sendlong") {
      post_receive(16);
    } else if (capture.name != "rc_rnr") {
      for (int i = 0; i < 40; ++i) post_receive(32768);
    }
  }
  // Feeds all requests, and collects our answers and the kernel's.
  void replay() {
    uint32_t requests = 0;
    for (const roce::CapturedPacket* packet : capture.packets) {
      if (!Capture::is_request(*packet)) {
        recorded.push_back(describe(*packet));
        continue;
      }
      // The program posted its receive 30 ms late, after four NAKs.
      if (capture.name == "rc_rnr" && ++requests == 5) post_receive(32768);
      feed(*packet);
      for (const SentPacket& answer : e.transmitted()) ours.push_back(describe(answer));
    }
  }

  std::vector<std::string> recorded;
  std::vector<std::string> ours;
};

TEST_P(ResponderReplay, AnswersAsTheKernelDid) {
  replay();
  EXPECT_EQ(ours, recorded);
}
INSTANTIATE_TEST_SUITE_P(Captures, ResponderReplay,
                         testing::Values("rc_send", "rc_write", "rc_write_ipv6", "rc_write_mtu4096",
                                         "rc_read", "rc_read_mtu4096", "rc_atomic", "rc_rnr", "rc_nak_rkey",
                                         "rc_nak_readrange", "rc_loss_netem", "rc_reorder_netem"),
                         [](const auto& test) { return std::string(test.param); });

// One answer differs. To a SEND longer than its receive the kernel answers "remote operational error"; the
// specification says "invalid request" (IBTA volume 1, 9.7.5.2.8).
class ResponderReplayOfATooLongSend : public ResponderReplay {};
TEST_P(ResponderReplayOfATooLongSend, AnswersAsTheSpecificationSays) {
  replay();
  ASSERT_EQ(ours.size(), 1u);
  ASSERT_EQ(recorded.size(), 1u);
  const auto with_syndrome = [&](roce::NakCode code) {
    roce::Headers headers = rc_headers(roce::Operation::kAcknowledge, capture.client.psn);
    headers.destination = roce::Qpn(capture.client.qpn);
    headers.syndrome = roce::nak_syndrome(code);
    return describe(headers, {});
  };
  EXPECT_EQ(recorded[0], with_syndrome(roce::NakCode::kRemoteOperational));
  EXPECT_EQ(ours[0], with_syndrome(roce::NakCode::kInvalidRequest));
}
INSTANTIATE_TEST_SUITE_P(Captures, ResponderReplayOfATooLongSend, testing::Values("rc_nak_sendlong"),
                         [](const auto& test) { return std::string(test.param); });

// ---- our requester in the place of the client

class RequesterReplay : public CaptureReplay {
 protected:
  void SetUp() override {
    become(capture.client, capture.server, capture.client_address, capture.server_address);
    if (capture.name.starts_with(
            "rc_read")) {  // the program posted these READs together, without printing so
      for (const uint32_t length : {4096u, 100u, 2048u}) {
        capture.operations.push_back({IBV_WR_RDMA_READ, length, "'roff': 0, 'off': 40000"});
      }
    }
  }

  void post(const Operation& operation) {
    ibv_sge sge = region.sge(operation.argument("off", 0), operation.length);
    ibv_send_wr wr{};
    wr.opcode = operation.opcode;
    wr.sg_list = &sge;
    wr.num_sge = operation.length == 0 ? 0 : 1;
    wr.send_flags = static_cast<unsigned>(operation.argument("flags", IBV_SEND_SIGNALED));
    wr.imm_data = static_cast<uint32_t>(operation.argument("imm", 0));
    const uint64_t address = capture.server.address + operation.argument("roff", 0);
    const auto rkey = static_cast<uint32_t>(operation.argument("rkey", capture.server.rkey));
    std::smatch match;
    if (std::regex_search(operation.arguments, match, std::regex("'atom': \\((\\d+), (\\d+)\\)"))) {
      wr.wr.atomic = {.remote_addr = address,
                      .compare_add = std::stoull(match[1]),
                      .swap = std::stoull(match[2]),
                      .rkey = rkey};
    } else {
      wr.wr.rdma = {.remote_addr = address, .rkey = rkey};
    }
    ASSERT_TRUE(post_send(*e.qp, wr));
  }

  // Returns our next request: one that waits to be sent, a repetition after an RNR NAK, or the next
  // operation's.
  std::string next_request() {
    for (;;) {
      e.transmit();
      if (!e.sink.packets.empty()) return describe(e.sink.take());
      if (told_to_wait) {
        told_to_wait = false;
        e.now = e.qp->deadline();
        e.qp->on_timer(e.now);
      } else if (next_operation < capture.operations.size()) {
        post(capture.operations[next_operation++]);
      } else {
        return "nothing";
      }
    }
  }

  size_t next_operation = 0;
  bool told_to_wait = false;
};

TEST_P(RequesterReplay, AsksAsTheKernelDid) {
  for (const roce::CapturedPacket* packet : capture.packets) {
    if (Capture::is_request(*packet)) {
      ASSERT_EQ(next_request(), describe(*packet)) << packet->where;
    } else {
      feed(*packet);
      told_to_wait = roce::aeth_kind(Capture::parse(*packet).headers.syndrome) == roce::AethKind::kRnrNak;
    }
  }
  EXPECT_EQ(next_request(), "nothing");
  for (const uint64_t status : capture.client_statuses) EXPECT_EQ(e.sent().status, status);
  EXPECT_TRUE(e.send_cq->empty());
}
INSTANTIATE_TEST_SUITE_P(Captures, RequesterReplay,
                         testing::Values("rc_send", "rc_write", "rc_write_ipv6", "rc_write_mtu4096",
                                         "rc_read", "rc_read_mtu4096", "rc_atomic", "rc_rnr", "rc_nak_rkey",
                                         "rc_nak_readrange", "rc_nak_sendlong"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace verbena::transport
