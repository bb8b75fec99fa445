// SPDX-License-Identifier: Apache-2.0
#include <map>

#include <gtest/gtest.h>

#include "base/random.h"
#include "management/cm/captured_mads.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::cm {
namespace {

// Decodes `bytes`, encodes the message again, and expects the same bytes.
template <class Message>
void expect_same_bytes(ConstBytes bytes, const MessageHeader& header) {
  const auto message = decode<Message>(bytes);
  ASSERT_TRUE(message);
  const Mad again = encode(*message, header.transaction);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), again.bytes.begin(), again.bytes.end()));
}

using Check = void (*)(ConstBytes, const MessageHeader&);
constexpr Check kChecks[kMessageTypes] = {
    expect_same_bytes<Req>,     expect_same_bytes<Mra>,  expect_same_bytes<Rej>,  expect_same_bytes<Rep>,
    expect_same_bytes<Rtu>,     expect_same_bytes<Dreq>, expect_same_bytes<Drep>, expect_same_bytes<SidrReq>,
    expect_same_bytes<SidrRep>, expect_same_bytes<Lap>,  expect_same_bytes<Apr>};

TEST(Message, IsEncodedAsItWasDecodedForEveryCapturedDatagram) {
  std::map<MessageType, int> seen;
  for (const CapturedMad& captured : captured_mads()) {
    SCOPED_TRACE(captured.where);
    EXPECT_EQ(captured.qkey, kGsiQkey);
    const auto header = decode_header(captured.mad);
    ASSERT_TRUE(header);
    kChecks[static_cast<size_t>(header->type)](captured.mad, *header);
    ++seen[header->type];
  }
  const std::map<MessageType, int> expected = {{MessageType::kReq, 5},     {MessageType::kRep, 4},
                                               {MessageType::kRtu, 4},     {MessageType::kDreq, 4},
                                               {MessageType::kDrep, 4},    {MessageType::kSidrReq, 1},
                                               {MessageType::kSidrRep, 1}, {MessageType::kRej, 1}};
  EXPECT_EQ(seen, expected);
}

// The fields of a captured REQ, as tshark shows them.
TEST(Message, SaysOfACapturedReqWhatItMeans) {
  const auto req = decode<Req>(captured_mads("cm_rping.pcap").front().mad);
  ASSERT_TRUE(req);
  EXPECT_EQ(req->local_id, 0xd222faf8u);
  EXPECT_EQ(req->service_id, service_id(PortSpace::kTcp, 7174));
  EXPECT_EQ(req->local_ca_guid, 0x505400fffe770002u);
  EXPECT_EQ(req->local_qpn, 0x41u);
  EXPECT_EQ(req->responder_resources, 1);
  EXPECT_EQ(req->initiator_depth, 1);
  EXPECT_EQ(req->remote_response_timeout, 20);
  EXPECT_EQ(req->local_response_timeout, 20);
  EXPECT_EQ(req->transport, Transport::kRc);
  EXPECT_EQ(req->starting_psn, 0xa639bcu);
  EXPECT_EQ(req->retry_count, 7);
  EXPECT_EQ(req->rnr_retry_count, 7);
  EXPECT_EQ(req->pkey, 0xffff);
  EXPECT_EQ(req->path_mtu, 3);
  EXPECT_EQ(req->max_cm_retries, 15);
  EXPECT_EQ(req->primary.local_lid, kPermissiveLid);
  EXPECT_FALSE(req->primary.subnet_local);
  EXPECT_EQ(req->primary.flow_label, 0x2c7d6u);
  EXPECT_EQ(req->primary.packet_rate, 0);
  EXPECT_EQ(req->primary.hop_limit, 64);
  EXPECT_EQ(req->primary.local_ack_timeout, 19);
  EXPECT_FALSE(req->alternate.exists());
}

// Encodes a message in which every bit that may be set is random, and expects all of them back.
template <class Message>
void expect_bits_survive(Random& random) {
  Mad mad = encode(Message{}, 0);
  for (size_t at = kMadHeaderBytes; at < kMadBytes; ++at) {
    mad.bytes[at] = static_cast<std::byte>(random.next());
  }
  const auto message = decode<Message>(mad.bytes);
  if (!message) return;
  const auto again = decode<Message>(encode(*message, 1).bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *message);
}

TEST(Message, KeepsEveryFieldApart) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    expect_bits_survive<Req>(random);
    expect_bits_survive<Mra>(random);
    expect_bits_survive<Rej>(random);
    expect_bits_survive<Rep>(random);
    expect_bits_survive<Rtu>(random);
    expect_bits_survive<Dreq>(random);
    expect_bits_survive<Drep>(random);
    expect_bits_survive<Lap>(random);
    expect_bits_survive<Apr>(random);
    expect_bits_survive<SidrReq>(random);
    expect_bits_survive<SidrRep>(random);
  }
}

// Linux: include/rdma/ibta_vol1_c12.h, cm_format_req(), cm_format_rep(), cm_format_sidr_rep().
TEST(Message, CarriesEnhancedConnectionEstablishmentAsTheKernelDoes) {
  Req req;
  req.ece = {0x123456, 0xa1b2c3d4};
  const Mad as_req = encode(req, 0);
  EXPECT_EQ(load_be24(&as_req.bytes[24 + 5]), 0x123456u);
  EXPECT_EQ(load_be<uint32_t>(&as_req.bytes[20]), 0xa1b2c3d4u);

  Rep rep;
  rep.ece = {0x123456, 0xa1b2c3d4};
  const Mad as_rep = encode(rep, 0);
  EXPECT_EQ(as_rep.bytes[24 + 15], std::byte{0x12});
  EXPECT_EQ(as_rep.bytes[24 + 19], std::byte{0x34});
  EXPECT_EQ(as_rep.bytes[24 + 23], std::byte{0x56});
  EXPECT_EQ(load_be<uint32_t>(&as_rep.bytes[20]), 0xa1b2c3d4u);

  SidrRep sidr;
  sidr.ece = {0x3456, 0x11};
  const Mad as_sidr = encode(sidr, 0);
  EXPECT_EQ(load_be<uint16_t>(&as_sidr.bytes[24 + 6]), 0x34);
  EXPECT_EQ(as_sidr.bytes[24 + 11], std::byte{0x56});
  EXPECT_EQ(load_be<uint32_t>(&as_sidr.bytes[20]), 0x11u);
}

TEST(Message, IsRefusedWhenItsHeaderIsOfSomethingElse) {
  Rtu rtu;
  rtu.local_id = rtu.remote_id = 1;
  const Mad good = encode(rtu, 0);
  EXPECT_TRUE(decode_header(good.bytes));
  EXPECT_EQ(decode_header(ConstBytes(good.bytes).first(255)).error(), DropReason::kNotWhole);
  EXPECT_EQ(decode_header({}).error(), DropReason::kNotWhole);
  const auto with = [&](size_t at, int value) {
    Mad bad = good;
    bad.bytes[at] = static_cast<std::byte>(value);
    return decode_header(bad.bytes).error();
  };
  EXPECT_EQ(with(0, 2), DropReason::kNotOurs);
  EXPECT_EQ(with(1, 0x03), DropReason::kNotOurs);
  EXPECT_EQ(with(2, 1), DropReason::kNotOurs);
  EXPECT_EQ(with(3, 0x81), DropReason::kNotOurs);
  EXPECT_EQ(with(17, 0x0f), DropReason::kNotOurs);
  EXPECT_EQ(with(17, 0x1b), DropReason::kNotOurs);
  EXPECT_EQ(with(16, 1), DropReason::kNotOurs);
}

template <class Message>
bool is_refused(const Message& message) {
  return !decode<Message>(encode(message, 0).bytes);
}

TEST(Message, IsRefusedWhenAFieldCannotBe) {
  EXPECT_TRUE(is_refused(Req{.local_qpn = 17}));  // the ID is missing
  EXPECT_TRUE(is_refused(Req{.local_id = 1, .local_qpn = 0xffffff}));
  EXPECT_FALSE(is_refused(Req{.local_id = 1, .local_qpn = 17}));
  EXPECT_TRUE(is_refused(Rep{.local_id = 1, .remote_id = 1, .local_qpn = 0xffffff}));
  EXPECT_FALSE(is_refused(Rep{.local_id = 1, .remote_id = 1, .local_eecn = 17}));
  EXPECT_TRUE(is_refused(Mra{.remote_id = 1, .delayed = static_cast<Answered>(3)}));
  EXPECT_TRUE(is_refused(Rej{}));
  EXPECT_TRUE(is_refused(Rej{.remote_id = 1, .ari_length = 73}));
  EXPECT_FALSE(is_refused(Rej{.remote_id = 1, .ari_length = 72}));
  EXPECT_TRUE(is_refused(Apr{.local_id = 1, .remote_id = 1, .info_length = 73}));
  EXPECT_TRUE(is_refused(SidrRep{.request_id = 1, .info_length = 73}));
  EXPECT_TRUE(is_refused(SidrReq{}));
  EXPECT_TRUE(is_refused(Rtu{.local_id = 1}));
  EXPECT_TRUE(is_refused(Dreq{.remote_id = 1}));
}

TEST(IpService, ReadsTheHeadOfCapturedPrivateData) {
  for (const CapturedMad& captured : captured_mads()) {
    SCOPED_TRACE(captured.where);
    const auto header = decode_header(captured.mad);
    ConstBytes data;
    if (header->type == MessageType::kReq) data = ConstBytes(captured.mad).subspan(24 + 140);
    if (header->type == MessageType::kSidrReq) data = ConstBytes(captured.mad).subspan(24 + 16);
    if (data.empty()) continue;
    const auto ip = decode_ip_header(data);
    ASSERT_TRUE(ip);
    EXPECT_EQ(ip->source, captured.arrival.path.source);
    EXPECT_EQ(ip->destination, captured.arrival.path.destination);
    EXPECT_NE(ip->source_port, 0);
    const auto again = encode_ip_header(*ip);
    EXPECT_EQ(std::memcmp(again.data(), data.data(), again.size()), 0);
  }
}

TEST(IpService, RefusesOtherVersionsAndShortData) {
  std::array<uint8_t, IpHeader::kBytes> bytes = encode_ip_header(IpHeader{});
  EXPECT_TRUE(decode_ip_header(std::as_bytes(std::span(bytes))));
  EXPECT_FALSE(decode_ip_header(std::as_bytes(std::span(bytes)).first(35)));
  bytes[1] = 0x50;
  EXPECT_FALSE(decode_ip_header(std::as_bytes(std::span(bytes))));
  bytes[1] = 0x40;
  bytes[0] = 0x10;
  EXPECT_FALSE(decode_ip_header(std::as_bytes(std::span(bytes))));
}

TEST(IpService, NamesPortsByPortSpace) {
  EXPECT_EQ(service_id(PortSpace::kTcp, 0x1c06), 0x0000000001061c06u);
  EXPECT_EQ(service_id(PortSpace::kUdp, 7174), 0x0000000001111c06u);
  const auto service = parse_service_id(0x01111c06);
  ASSERT_TRUE(service);
  EXPECT_EQ(service->space, PortSpace::kUdp);
  EXPECT_EQ(service->port, 7174);
  EXPECT_FALSE(parse_service_id(0x1000000001061c06));
  EXPECT_FALSE(parse_service_id(0x0000000002061c06));
}

// Linux: cm_ack_timeout().
TEST(Timeouts, OfAPathAreRoundedAsInTheKernel) {
  EXPECT_EQ(ack_timeout(15, 18), 19);
  EXPECT_EQ(ack_timeout(0, 18), 19);
  EXPECT_EQ(ack_timeout(18, 18), 20);
  EXPECT_EQ(ack_timeout(19, 18), 20);
  EXPECT_EQ(ack_timeout(20, 18), 21);
  EXPECT_EQ(ack_timeout(21, 18), 21);
  EXPECT_EQ(ack_timeout(31, 31), 31);
  EXPECT_EQ(time_of(20), Duration(int64_t{4096} << 20));
  EXPECT_EQ(time_of(0), std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace verbena::cm
