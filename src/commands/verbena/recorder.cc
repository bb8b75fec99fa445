// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <time.h>

#include "base/format.h"
#include "control/model/agent_status.h"
#include "wire/ethernet/steering.h"
#include "wire/roce/ip_header.h"

namespace verbena::commands {
namespace {

constexpr Duration kHolds = std::chrono::seconds(1);
// Limits how often the page is read: packets with invalid QPNs must not cause a read each.
constexpr Duration kReadInterval = std::chrono::milliseconds(20);

constexpr Duration kRefreshInterval = std::chrono::seconds(1);

using capture::PcapngWriter;
using capture::Record;

constexpr uint64_t kMaxAtOnce = 1024;
constexpr size_t kMaxComments = 65'536;
constexpr uint32_t kLeastHeaders =
    ethernet::kHeaderBytes + roce::kIpv4HeaderBytes + roce::kUdpHeaderBytes + roce::kBthBytes;
// The range of UDP source ports, as Verbena's sockets use it: one for each pair of slots
// (adapter/net/udp/send_sockets.h).
constexpr uint16_t kFirstPort = 0xc000;
constexpr uint32_t kPorts = 0x4000;

capture::WallTime wall_minus_monotonic() {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const auto since_1970 = std::chrono::seconds(wall.tv_sec) + std::chrono::nanoseconds(wall.tv_nsec);
  return since_1970 - MonotonicClock::now().time_since_epoch();
}

uint16_t port_between(uint32_t from_slot, uint32_t to_slot) {
  return static_cast<uint16_t>(kFirstPort + (from_slot * 131 + to_slot) % kPorts);
}

}  // namespace

void SendingQps::refresh(TimePoint now) {
  read_at_ = now;
  by_destination_.clear();
  // Read destroyed QPs first: their packets may still be in the ring. QPs in use then replace them.
  for (const auto choice : {control::QpChoice::kAll, control::QpChoice::kInUse}) {
    control::SlotStatus slot;
    read_status_page(page_.get(), slot, choice);
    for (const control::QpNumbers& qp : slot.qps) {
      by_destination_[qp.remote_qpn & roce::Qpn::kMask] = roce::Qpn(qp.qpn);
    }
  }
}

roce::Qpn SendingQps::that_sends_to(roce::Qpn destination, TimePoint now) {
  const auto find = [&] {
    const auto found = by_destination_.find(destination.value());
    return found == by_destination_.end() ? roce::Qpn() : found->second;
  };
  const bool is_fresh = read_at_ != TimePoint::min() && now - read_at_ < kHolds;
  if (const roce::Qpn known = find(); is_fresh && known.value() != 0) return known;
  if (read_at_ == TimePoint::min() || now - read_at_ >= kReadInterval) refresh(now);
  return find();
}

void CaptureLinks::refresh(TimePoint now) {
  if (now < next_refresh_) return;
  next_refresh_ = now + kRefreshInterval;
  owners_.clear();
  for (const control::Link& link : ask_()) {
    for (const control::GidEntry& entry : link.gids) {
      Owner& owner = owners_[entry.gid];
      if (owner.links.empty()) owner.mac = link.mac;
      owner.links.push_back(link.name);
    }
  }
}

const CaptureLinks::Owner* CaptureLinks::find(const roce::Address& address, TimePoint now) {
  auto found = owners_.find(address);
  if (found == owners_.end()) {
    refresh(now);
    found = owners_.find(address);
  }
  return found == owners_.end() ? nullptr : &found->second;
}

capture::MacAddress CaptureLinks::mac_of(const roce::Address& address, TimePoint now) {
  const Owner* const owner = find(address, now);
  return owner == nullptr ? capture::MacAddress{} : owner->mac;
}

bool CaptureLinks::is_on(const std::string& link, const roce::Path& path, TimePoint now) {
  return std::ranges::any_of(std::array{&path.source, &path.destination}, [&](const roce::Address* address) {
    const Owner* const owner = find(*address, now);
    return owner != nullptr && std::ranges::find(owner->links, link) != owner->links.end();
  });
}

uint32_t CaptureChoice::payload_snap_bytes() const {
  return snap_bytes <= kLeastHeaders ? 0 : std::min(snap_bytes - kLeastHeaders, roce::kMaxPathMtu);
}

// The ring of a slot. The records of an ended process are still read.
struct Recorder::Source {
  Source(control::CaptureNews news, capture::RingMapping mapping, uint32_t snap_bytes)
      : slot(news.slot),
        ring(std::move(mapping)),
        reader(ring.memory(), snap_bytes),
        qps(std::move(news.status_page)) {}

  const uint32_t slot;
  const capture::RingMapping ring;
  capture::RingReader reader;
  SendingQps qps;
  bool ended = false;
};

Recorder::Recorder(CaptureChoice choice, CaptureLinks& links)
    : choice_(std::move(choice)),
      links_(links),
      to_wall_(wall_minus_monotonic()),
      began_(MonotonicClock::now()) {
  writer_.section("Verbena " VERBENA_VERSION);
  writer_.interface("verbena", "what processes of this host send each other by memory", choice_.snap_bytes);
}

Recorder::~Recorder() = default;

void Recorder::begin(control::CaptureNews news) {
  processes_[news.slot] = {news.pid, verbena::format("{} (pid {})", news.program, news.pid)};
  comments_.clear();
  auto mapping = capture::RingMapping::map(news.ring.get());
  if (!mapping) {
    complaints_.push_back(verbena::format("no ring for {}", processes_[news.slot].name));
    return;
  }
  sources_.push_back(
      std::make_unique<Source>(std::move(news), std::move(*mapping), choice_.payload_snap_bytes()));
}

void Recorder::end(uint32_t slot) {
  for (const auto& source : sources_) source->ended |= source->slot == slot;
}

uint64_t Recorder::record(TimePoint limit, TimePoint now) {
  // A record with a time in the future is malformed; it counts as due now.
  const auto time_of = [&](const Record& record) { return record.time > now ? limit : record.time; };
  std::vector<Source*> due;  // heap with the earliest in front
  const auto is_later = [&](Source* a, Source* b) {
    return time_of(*a->reader.front()) > time_of(*b->reader.front());
  };
  const auto push = [&](Source& source) {
    const Record* const front = source.reader.front();
    if (front == nullptr || time_of(*front) > limit) return;
    due.push_back(&source);
    std::ranges::push_heap(due, is_later);
  };
  for (const auto& source : sources_) push(*source);

  uint64_t records = 0;
  for (; !due.empty() && records < kMaxAtOnce && !is_complete(); ++records) {
    std::ranges::pop_heap(due, is_later);
    Source& source = *due.back();
    due.pop_back();
    write(source, *source.reader.front(), now);
    source.reader.pop();
    push(source);
  }
  std::erase_if(sources_, [&](const auto& source) {
    const bool is_over = source->reader.is_broken() || (source->ended && source->reader.front() == nullptr);
    if (is_over) retire(*source);
    return is_over;
  });
  return records;
}

void Recorder::retire(Source& source) {
  if (source.reader.is_broken()) {
    complaints_.push_back(
        verbena::format("{} writes what is no packet: it is not captured any more", process_at(source.slot)));
  }
  left_out_by_retired_ += source.reader.left_out();
}

bool Recorder::is_wanted(const Source& source, const Record& record, TimePoint now) {
  if (choice_.pid != 0 && pid_at(source.slot) != choice_.pid &&
      pid_at(record.headers.destination.slot()) != choice_.pid) {
    return false;
  }
  return choice_.link.empty() || links_.is_on(choice_.link, record.path, now);
}

void Recorder::write(Source& source, const Record& record, TimePoint now) {
  if (!is_wanted(source, record, now)) return;
  roce::Qpn from = record.source;
  if (from.value() == 0) {
    from = record.headers.info().has(roce::kDeth) ? record.headers.source
                                                  : source.qps.that_sends_to(record.headers.destination, now);
  }
  const uint32_t sender = record.peers_answer ? from.slot() : source.slot;
  const uint32_t receiver = record.headers.destination.slot();
  const capture::FrameAddresses addresses{.source = links_.mac_of(record.path.source, now),
                                          .destination = links_.mac_of(record.path.destination, now),
                                          .source_port = port_between(sender, receiver)};
  const bool is_inbound = choice_.pid != 0 ? pid_at(sender) != choice_.pid : record.peers_answer;
  for (uint32_t i = 0; i < record.count && !is_complete(); ++i) {
    const auto frame = builder_.build(addresses, record.path, capture::packet_at(record, i));
    const size_t kept = std::min<size_t>(frame.bytes.size(), choice_.snap_bytes);
    writer_.packet(
        {.interface = 0,
         .time = wall(std::min(record.time, now)),
         .frame = frame.bytes.first(kept),
         .wire_bytes = frame.wire_bytes,
         .comment = comment(sender, from, record),
         .direction = is_inbound ? PcapngWriter::Direction::kInbound : PcapngWriter::Direction::kOutbound});
    ++written_;
  }
}

const std::string& Recorder::comment(uint32_t slot, roce::Qpn from, const Record& record) {
  if (comments_.size() >= kMaxComments) comments_.clear();
  const roce::Qpn to = record.headers.destination;
  const uint64_t key = uint64_t{from.value()} | uint64_t{to.value()} << 24 | uint64_t{slot} << 48 |
                       uint64_t{record.by_initiator} << 58;
  std::string& text = comments_[key];
  if (!text.empty()) return text;
  const std::string from_name =
      from.value() == 0 ? "QP unknown" : verbena::format("QP {:#08x}", from.value());
  text = verbena::format("{}, {} -> {}, QP {:#08x}{}", process_at(slot), from_name, process_at(to.slot()),
                         to.value(), record.by_initiator ? "; carried out by the initiator" : "");
  return text;
}

std::string Recorder::process_at(uint32_t slot) const {
  const auto found = processes_.find(slot);
  return found == processes_.end() ? "another process" : found->second.name;
}

pid_t Recorder::pid_at(uint32_t slot) const {
  const auto found = processes_.find(slot);
  return found == processes_.end() ? 0 : found->second.pid;
}

uint64_t Recorder::left_out() const {
  uint64_t sum = left_out_by_retired_;
  for (const auto& source : sources_) sum += source->reader.left_out();
  return sum;
}

void Recorder::finish() {
  writer_.statistics(0, {.began = wall(began_),
                         .ended = wall(MonotonicClock::now()),
                         .received = written_ + left_out(),
                         .dropped = left_out()});
}

std::vector<std::string> Recorder::take_complaints() {
  return std::exchange(complaints_, {});
}

}  // namespace verbena::commands
