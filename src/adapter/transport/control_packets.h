// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "adapter/congestion/algorithm.h"
#include "base/bytes.h"
#include "wire/roce/packet.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// SACK: selective acknowledgement from a Verbena responder to a Verbena requester. It lists the packets that
// arrived after a missing one. An acknowledgement only says that all packets before a PSN have arrived, and a
// NAK only names one missing packet. So without SACKs a requester learns of one gap per round trip (IBTA
// volume 1, 9.7.5.1.1). On a link that loses one packet in a hundred, that means a hundred packets per round
// trip, however fast the link is.
//
// The packet has a vendor opcode, one of those left to manufacturers (table 38). Its top bits name no
// transport service, and adapters drop it (9.6.1.2). Linux rxe before 5.16 checks the PSN instead, and takes
// an unknown opcode with an outstanding PSN for an error of the QP. So the packet has a PSN from the distant
// past (kPast), which every requester ignores. Nothing depends on SACKs: the responder still sends
// acknowledgements, and NAKs to requesters that do not understand SACKs. To a requester that has confirmed no
// SACK, a responder sends kMaxUnheard SACKs, and then only a few. Once the requester has confirmed one, the
// responder sends SACKs and no NAKs. The requester confirms again for each NAK of a responder that has sent
// SACKs.
//
// The payload is a PSN and up to kMax ranges. Each range is two 32-bit words: the distance of its first PSN
// from the payload's PSN, and its number of PSNs. Everything between ranges is missing. The payload's PSN is
// the first that has not arrived. (In XRC this PSN may go back, if the process that owns a queue was not
// ready for a packet.) If one packet has no room for all ranges, another SACK packet continues the list. The
// PSN in its payload is where the previous packet's ranges ended, and the highest bit of that word is set
// (kContinues). The seven bits between kContinues and the PSN report other senders to the responder's process
// (incast.h).
struct Sack {
  static constexpr uint32_t kMax = 127;
  static constexpr uint32_t kRangeBytes = 8;
  static constexpr uint32_t kMaxBytes = 4 + kMax * kRangeBytes;
  static constexpr uint32_t kPast = 1u << 22;       // the packet's PSN is this far behind `expected`
  static constexpr uint32_t kMaxPackets = 16;       // for one report of all ranges
  static constexpr uint32_t kContinues = 1u << 31;  // bit in the payload's first word
  // Max ranges in a packet whose payload has at most `mtu` bytes.
  static uint32_t max_at(uint32_t mtu) { return std::min(kMax, (mtu - 4) / kRangeBytes); }
  // As long as a requester has not shown that it understands SACKs, the responder sends it this many, and
  // then one SACK for each kGapsUnheard new gaps. It goes on, because a full queue may have dropped all
  // SACKs.
  static constexpr uint32_t kMaxUnheard = 8;
  static constexpr uint32_t kGapsUnheard = 16;

  struct Range {
    roce::Psn first;
    uint32_t count;
  };

  // Parses a packet's payload. Stops at the first invalid range; a payload without a PSN gives no ranges.
  static Sack read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  roce::Psn expected;         // the payload's PSN
  bool continues = false;     // `expected` is where the previous packet's ranges ended
  congestion::Incast incast;  // other senders to the responder's process
  std::array<Range, kMax> ranges;
  uint32_t count = 0;  // of ranges
};

// Repeats a requester's latest READ requests in a control packet to a Verbena responder. Requests are
// executed in order (IBTA volume 1, 9.7.5.1), so after a lost request no data comes for a round trip,
// whatever the path carries. On a path with an RTT of 10 ms that loses one packet in a hundred, no data comes
// for half of the time. A request is small beside its data, so each request is repeated in two later packets.
// A responder that has all requests ignores the packet. Only a responder that has sent SACKs gets this vendor
// opcode.
struct RepeatedReads {
  static constexpr uint32_t kMax = 4;
  // The requester sends a packet after this many new requests.
  static constexpr uint32_t kNew = 2;
  // Size of one request in the payload: a PSN and a RETH.
  static constexpr uint32_t kRequestBytes = 4 + roce::kRethBytes;
  static constexpr uint32_t kMaxBytes = kMax * kRequestBytes;

  struct Request {
    roce::Psn psn;  // of the first response packet
    uint64_t address = 0;
    uint32_t rkey = 0;
    uint32_t bytes = 0;  // of data
  };

  // Parses a packet's payload, up to its last complete request.
  static RepeatedReads read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  // Adds a request. Drops the oldest one if there are kMax already.
  void add(const Request& request);
  void clear() { count = 0; }
  // Drops the requests before `psn`. REQUIRES: they are answered. Otherwise, after the PSNs have wrapped, an
  // old request might be repeated while a newer request has its PSN.
  void drop_before(roce::Psn psn);
  std::span<const Request> all() const& { return {requests.data(), count}; }
  std::span<const Request> all() && = delete;  // it would dangle

  std::array<Request, kMax> requests;  // in the order in which they were sent
  uint32_t count = 0;
};

// Remembers the latest READ requests that a responder has executed from a RepeatedReads packet. The network
// may still deliver the original of such a request, which must not be answered again. Each request is ignored
// only once, as the peer may repeat the READ itself later.
//
// Threads: the caller holds the shard's lock.
class ReadsByWord {
 public:
  void add(roce::Psn psn, uint32_t bytes) { requests_[next_++ % requests_.size()] = {psn, bytes, true}; }
  // Returns whether to ignore a request that has come: it is the late original of a remembered request.
  // Returns true once for each remembered request.
  bool take(roce::Psn psn, uint32_t bytes);
  void clear() { requests_ = {}; }

 private:
  struct Request {
    roce::Psn psn;
    uint32_t bytes = 0;
    bool awaited = false;
  };
  std::array<Request, 4 * RepeatedReads::kMax> requests_;
  uint32_t next_ = 0;
};

// Receiver report of UC, from a Verbena receiver to a Verbena sender (for UD, a part of DatagramReport). The
// report names the next expected PSN and the total number of missing packets. UC and UD have no
// acknowledgements, so the sender learns from reports how much the path carries. It does not send missing
// packets again.
//
// The packet has a vendor opcode, and a PSN from the distant past for the reasons that Sack gives. The sender
// requests a report by AckReq, which has no other meaning in UC. A sender that has confirmed no report gets
// reports unrequested, and ever more rarely (ReportsOwed): it may not understand them. The payload is two
// 32-bit words. The first word is the expected PSN, with the bits of incast.h. The second word is the number
// of packets that were missing since the connection was made.
struct ReceiverReport {
  static constexpr uint32_t kBytes = 8;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<ReceiverReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn expected;         // next expected PSN
  uint32_t missing = 0;       // packets missing since the connection was made, modulo 2^32
  congestion::Incast incast;  // other senders to the receiver's process
};

// Requests a receiver report: the sender of many datagrams asks one of their receivers how many have arrived.
// All datagrams of a QP share one PSN sequence, whatever their destination, so a receiver cannot tell from
// PSNs which datagrams to itself are missing. Therefore the sender counts datagrams per destination, and
// sends the count in a ReportRequest before the next datagram.
//
// The payload is three 32-bit words: the count, the sender's QPN, and the Q_Key. A packet without DETH does
// not carry the QPN otherwise. The receiver keeps state for each sender that requests reports. It checks the
// Q_Key first, so that only a sender with the right to send datagrams can cause this.
struct ReportRequest {
  static constexpr uint32_t kBytes = 12;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<ReportRequest> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn next;  // number of the next datagram to this destination
  roce::Qpn sender;
  uint32_t qkey = 0;  // of the destination
};

// Answers a ReportRequest: a receiver report whose `expected` is the request's count, then a third word with
// the receiver's QPN.
struct DatagramReport {
  static constexpr uint32_t kBytes = ReceiverReport::kBytes + 4;

  // Parses the payload. Returns nullopt if it is too short.
  static std::optional<DatagramReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  ReceiverReport report;
  roce::Qpn receiver;
};

// Decides when a UC receiver owes its sender a receiver report, and counts the missing packets.
//
// Threads: the caller holds the shard's lock.
class ReportsOwed {
 public:
  // Payload bytes between reports to a sender that has confirmed no report. Its AckReq is ignored, since
  // Linux rxe sets AckReq, too. From the kOften-th report on, each report doubles the bytes, kMaxSeldom times
  // at most. Reports never stop: where most packets are lost, the first reports and confirmations may have
  // been lost, too.
  static constexpr uint64_t kUnheardBytes = 16 * 1024;
  static constexpr uint32_t kOften = 8;
  static constexpr uint32_t kMaxSeldom = 6;

  // Counts a packet with `bytes` bytes of payload, before which `missing` packets are missing. `asks` tells
  // whether the packet has AckReq. May make a report due.
  void on_packet(uint32_t missing, uint32_t bytes, bool asks) {
    missing_ += missing;
    bytes_ += bytes;
    is_due_ = is_due_ || (heard_ ? asks : bytes_ >= kUnheardBytes << seldom_);
  }
  // Call when a packet that was counted as missing has come late.
  void on_late() { missing_ -= missing_ > 0 ? 1 : 0; }
  // Call when the sender has confirmed a report: it understands reports.
  void on_heard() { heard_ = true; }
  // Makes a report due if the sender has confirmed one. Call when the sender should learn of other senders
  // (IncastShare).
  void owe() { is_due_ = is_due_ || heard_; }

  bool is_due() const { return is_due_; }
  // Total number of missing packets, modulo 2^32.
  uint32_t missing() const { return missing_; }
  // Call when a report was sent.
  void on_sent() {
    is_due_ = false;
    bytes_ = 0;
    if (!heard_ && ++unheard_ >= kOften) seldom_ = std::min(seldom_ + 1, kMaxSeldom);
  }

 private:
  uint32_t missing_ = 0;
  uint64_t bytes_ = 0;  // since the last report
  uint32_t unheard_ = 0;
  uint32_t seldom_ = 0;  // number of doublings
  bool heard_ = false;
  bool is_due_ = false;
};

}  // namespace verbena::transport
