// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/requester.h"

#include <algorithm>
#include <utility>

#include "adapter/transport/reorder_buffer.h"
#include "adapter/transport/send_request.h"
#include "base/probes.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Operation;
using roce::Psn;

// More bursts than this are never in flight, however small their packets: a receiver's buffer counts packets,
// too.
constexpr uint32_t kMaxBursts = 16;
// While what is missing is sent again, and again, so many windows may follow it.
constexpr uint32_t kWindowsBehindGap = 8;
// Where messages go by memory they wait for others as soon as the peer is so many behind: before it would
// lose what those behind gain.
constexpr uint32_t kMessagesBehind = 8;
// Of shorter messages nothing is lent, in bytes: to fetch takes a system call.
constexpr uint32_t kLeastLent = 1 << 16;
// Bytes in flight, whatever the path.
constexpr uint32_t kMaxInFlight = 1u << 30;
// A window of fewer is used to its last packet.
constexpr uint32_t kLeastRunsInWindow = 3;
// With fewer, both ends would wait for each other.
constexpr uint32_t kLeastRunsForPairs = 4;
// A long path needs no more acknowledgements in a round trip, unless that would be longer runs in between.
constexpr uint32_t kAsksInWindow = 64;
constexpr uint32_t kMaxRunsUnasked = 8;
constexpr uint32_t kPair = 2;

// What is wrong with a request by itself; such a one is never sent. (Posting refuses what it can see; the
// rest ends here.)
std::optional<ibv_wc_status> fault_of(const SendWqe& wqe) {
  if (!is_data(wqe) && !needs_response(wqe)) return IBV_WC_LOC_QP_OP_ERR;
  if (is_atomic(wqe) && wqe.length < sizeof(uint64_t)) return IBV_WC_LOC_LEN_ERR;
  if (wqe.opcode == IBV_WR_ATOMIC_WRITE && wqe.length != sizeof(uint64_t)) return IBV_WC_LOC_LEN_ERR;
  if (wqe.length > kMaxMessageBytes) return IBV_WC_LOC_LEN_ERR;
  return std::nullopt;
}

}  // namespace

Requester::Sizes Requester::sizes_of(const Traits& traits, uint32_t mtu) const {
  Sizes sizes;
  sizes.charge = traits.charge_per_packet;
  sizes.run_packets = traits.packets_in_burst(mtu);
  sizes.run_bytes = sizes.run_packets * (mtu + sizes.charge);
  // Where another process has the queues of XRC, packets are passed on one by one.
  sizes.joined = service_ == roce::Service::kRc ? traits.packets_joined(mtu) : 1;
  sizes.lent = service_ == roce::Service::kRc ? traits.packets_lent(mtu) : 0;
  sizes.joined_messages = service_ == roce::Service::kRc ? traits.joined_messages : 1;
  sizes.max_packets = static_cast<int32_t>(kMaxBursts * traits.burst_packets);
  if (!traits.lossless) {
    sizes.gather_requests = traits.burst_packets;
    sizes.gather_bytes = (traits.burst_bytes + traits.burst_packets - 1) / traits.burst_packets;
  } else if (sizes.joined_messages > 1) {
    sizes.gather_requests = sizes.joined_messages;
    sizes.gather_behind = kMessagesBehind;
  }
  return sizes;
}

void Requester::start() {
  const QpAttributes& attributes = qp_.attributes();
  running_ = true;
  head_ = cursor_ = assigned_ = ring().consumed();
  unacked_ = next_ = next_new_ = highest_ = attributes.send_psn;
  connection_ = {qp_.config().qpn, attributes.destination, attributes.send_psn};
  on_route();
  inflight_ = since_ack_request_ = reads_outstanding_ = one_sided_run_ = 0;
  one_sided_bytes_ = 0;
  heard_ = direct_refused_ = drains_for_direct_ = false;
  asked_ = next_;
  asks_next_ = false;
  stopped_.reset();
  fails_at_.reset();
  refused_at_.reset();
  implied_loss_at_.reset();
  tells_arrivals_ = heard_due_ = probe_due_ = asked_for_parts_ = false;
  heard_sent_ = probes_ = disorder_ = losses_ = 0;
  ack_deadline_ = rnr_deadline_ = paced_until_ = probe_deadline_ = overdue_ = kNever;
  is_patient_ = false;
  retries_left_ = attributes.retry_count;
  rnr_retries_left_ = attributes.rnr_retry;
}

void Requester::on_route() {
  const Traits& traits = qp_.route().traits;
  sizes_ = sizes_of(traits, mtu());
  const congestion::Sizes sizes{full_packet(), sizes_.run_bytes, traits.burst_charge()};
  lossless_window_.reset(sizes);
  window_ = lossless_window_.usable();
  flow_.reset();
  const QpConfig& config = qp_.config();
  if (!traits.lossless && config.repairs) flow_ = congestion::Flow::make(config.congestion, sizes);
  if (flow_) {
    obey_flow();
  } else {
    show_path();
  }
  scoreboard_.reset(unacked_);
  answers_.reset(unacked_);
  held_up_ = unacked_;
  latest_reads_.clear();
  reads_not_named_ = reads_to_name_ = 0;
  heard_due_ = probe_due_ = false;
  paced_until_ = probe_deadline_ = overdue_ = kNever;
  direct_bytes_ = 0;
  direct_refused_ = drains_for_direct_ = false;
  lends_ = true;
}

void Requester::obey_flow() {
  window_ = static_cast<uint32_t>(std::min<uint64_t>(flow_->window(), kMaxInFlight));
  runs_unasked_ = std::clamp(window_ / sizes_.run_bytes / kAsksInWindow, kPair, kMaxRunsUnasked);
  show_path();
}

// To those who look from outside.
void Requester::show_path() {
  if (qp_.config().path_numbers == nullptr) return;
  transport::show_path(*qp_.config().path_numbers, flow_.get(), inflight_);
}

// Something is missing that others have overtaken.
void Requester::lost() {
  if (!flow_) {
    lossless_window_.on_loss();
    window_ = lossless_window_.usable();
    return;
  }
  flow_->lost(full_packet());
  obey_flow();
}

void Requester::on_congestion() {
  if (!running_) return;
  if (!flow_) return lost();
  flow_->marked();
  obey_flow();
}

void Requester::halt() {
  running_ = false;
  highest_ = unacked_;
  users_ = 0;
  scoreboard_.reset(unacked_);
  answers_.reset(unacked_);
  pins_.clear();
  heard_due_ = probe_due_ = false;
  ack_deadline_ = rnr_deadline_ = paced_until_ = probe_deadline_ = overdue_ = kNever;
}

Duration Requester::ack_timeout() const {
  const Duration asked = roce::ack_timeout(qp_.attributes().timeout);
  if (asked == Duration::zero()) return asked;
  return std::max(asked, qp_.config().least_ack_timeout);
}

roce::Headers Requester::headers_for(Operation operation, Psn psn) const {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(service_, operation);
  headers.destination = qp_.attributes().destination;
  headers.psn = psn;
  return headers;
}

uint32_t Requester::flight_bytes(const SendWqe& wqe, Psn from, Psn limit) const {
  const auto begin = static_cast<uint32_t>(from - wqe.first_psn);
  const auto end = static_cast<uint32_t>(limit - wqe.first_psn);
  return offset_of(wqe, end, mtu()) - offset_of(wqe, begin, mtu()) + (end - begin) * sizes_.charge;
}

// ---- transmission

bool Requester::may_start(const SendWqe& wqe) const {
  if (needs_response(wqe) && reads_outstanding_ >= std::max<uint32_t>(qp_.attributes().max_rd_atomic, 1))
    return false;
  const bool at_first_packet = cursor_ == assigned_ || next_ == wqe.first_psn;
  // A fence waits for all READs and atomics before it (IBTA volume 1, 10.8.3.3).
  return !(at_first_packet && wqe.has_flag(IBV_SEND_FENCE) && reads_outstanding_ > 0);
}

bool Requester::can_transmit() const {
  return can_send_new() || can_repair() || must_ask_again();
}

bool Requester::can_send_new() const {
  if (!running_ || stopped_ || rnr_deadline_ != kNever || paced_until_ != kNever) return false;
  if (cursor_ == ring().posted()) return false;
  if (asks_next_) return true;  // it was in flight before
  // In SQD requests that have begun go on, no new one begins.
  if (qp_.state() != IBV_QPS_RTS && cursor_ == assigned_) return false;
  if (next_ - unacked_ >= max_packets()) return false;
  if (holds_new() && has_outstanding() && !next_.is_before(highest_)) return false;
  const SendWqe& wqe = ring().at(cursor_);
  if (!may_start(wqe)) return false;
  if (is_local(wqe)) return true;
  return window_allows(std::min(wqe.length, mtu()) + sizes_.charge) && window_allows_run(wqe);
}

// Whether what would be sent next is the first of a run. All that is under way has been asked for then.
bool Requester::begins_run(const SendWqe& wqe) const {
  if (!flow_ || since_ack_request_ > 0 || next_.is_before(highest_) || !is_data(wqe)) return false;
  const uint32_t packets =
      cursor_ == assigned_ ? packets_of(wqe, mtu()) : static_cast<uint32_t>(wqe.last_psn - next_) + 1;
  if (packets >= sizes_.run_packets) return true;
  if (cursor_ + 1 == ring().posted()) return false;
  const SendWqe& following = ring().at(cursor_ + 1);
  return is_data(following) && packets + packets_of(following, mtu()) >= sizes_.run_packets;
}

// A run waits until the window has room for all of it. Runs would else stay cut in parts for good: a part is
// acknowledged by itself, and opens the window for as much.
bool Requester::window_allows_run(const SendWqe& wqe) const {
  return inflight_ + sizes_.run_bytes <= window_ || inflight_ == 0 ||
         window_ < kLeastRunsInWindow * sizes_.run_bytes || !begins_run(wqe);
}

// The same for the time at which it may leave.
bool Requester::pace_allows(const SendWqe& wqe, TimePoint now) const {
  if (!flow_) return true;
  const uint32_t most = sizes_.run_bytes - full_packet();
  return flow_->may_send(now) && (!begins_run(wqe) || flow_->may_send_after_run(most, now));
}

// Counted from the first that is missing. Where much is lost a packet may be lost twice and three times, and
// each time takes longer than a round trip: so windows of others may follow it meanwhile. A path that holds
// much may hold more packets than a machine's own networks ever do.
int32_t Requester::max_packets() const {
  if (!flow_) return sizes_.max_packets;
  const uint32_t of_window = kWindowsBehindGap * (window_ / full_packet());
  return std::max(sizes_.max_packets,
                  static_cast<int32_t>(std::min(of_window, ReorderBuffer::kMaxAhead / 2)));
}

bool Requester::may_gather() const {
  if (!running_ || !has_outstanding() || next_.is_before(highest_)) return false;
  if (cursor_ - head_ < sizes_.gather_behind) return false;
  const uint32_t unsent = ring().posted() - cursor_;
  if (unsent == 0 || unsent >= sizes_.gather_requests || unsent >= ring().capacity() / 4) return false;
  const SendWqe& latest = ring().at(cursor_ + unsent - 1);
  return sizes_.joined_messages > 1 ? may_be_joined(latest) : latest.length <= sizes_.gather_bytes;
}

void Requester::assign(SendWqe& wqe) {
  const uint32_t packets = is_local(wqe) ? 0 : packets_of(wqe, mtu());
  wqe.first_psn = next_new_;
  wqe.last_psn = next_new_ + (packets - 1);
  next_new_ = next_new_ + packets;
  wqe.executed = false;
  if (is_read(wqe)) wqe.part_packets = part_packets();
  ++assigned_;
}

// A part comes at once, however slow the path: so it is as much as that carries in a moment, and some of them
// are the window. Where only few may be asked for at a time it is more, for these to fill the window; and, as
// long as parts stay small beside it, for them to be as many windows as may follow what is missing.
uint32_t Requester::part_packets() const {
  constexpr uint64_t kMoments = 4000;  // a second
  constexpr uint64_t kLeast = 4;
  constexpr uint64_t kLeastPartsOfWindow = 16;
  if (!flow_ || flow_->rate() == 0) return sizes_.run_packets;
  const uint64_t packet = full_packet();
  const uint64_t window = window_ / packet;
  const uint64_t moment = std::min<uint64_t>(flow_->rate() / kMoments / packet, sizes_.run_packets);
  const uint64_t max_at_once = std::max<uint64_t>(qp_.attributes().max_rd_atomic, 1);
  const uint64_t to_fill_it = 2 * window / max_at_once;
  const uint64_t behind_gap =
      std::min(kWindowsBehindGap * window / max_at_once, window / kLeastPartsOfWindow);
  const uint64_t needed = std::min<uint64_t>(std::max(to_fill_it, behind_gap), 4 * sizes_.run_packets);
  return static_cast<uint32_t>(std::max({std::min(moment, window / 4), needed, kLeast}));
}

TransmitResult Requester::transmit(TimePoint now, uint32_t& budget) {
  sending_at_ = now;
  const TransmitResult result = send_posted(now, budget);
  if (flow_) {
    flow_->end_run();
    if (probe_deadline_ == kNever && probes_ == 0 && has_outstanding()) await_probe(now);
    const bool has_all = running_ && cursor_ == ring().posted() && inflight_ < window_;
    if (has_all) flow_->ran_dry(inflight_);
  }
  return result;
}

TransmitResult Requester::send_posted(TimePoint now, uint32_t& budget) {
  if (flow_) {
    if (const auto result = repair(now, budget); result != TransmitResult::kIdle) return result;
  }
  while (can_send_new() || must_ask_again()) {
    if (!can_send_new()) {
      ask_again();
      continue;
    }
    if (budget == 0) return TransmitResult::kMore;
    SendWqe& wqe = ring().at(cursor_);
    if (!pace_allows(wqe, now)) {
      paced_until_ = flow_->may_send_at();
      return TransmitResult::kPaced;
    }
    if (qp_.route().direct != nullptr && cursor_ == assigned_) {
      drains_for_direct_ = drains_for_direct_ && has_outstanding();
      const bool refused = std::exchange(direct_refused_, false);
      if (!refused && may_go_direct(wqe) && go_direct(wqe, budget)) continue;
      if (must_drain_for_direct(wqe)) {
        drain_for_direct();
        continue;
      }
    }
    if (cursor_ == assigned_) assign(wqe);
    if (is_local(wqe)) {
      if (!execute_here(wqe)) return TransmitResult::kMore;
      continue;
    }
    if (next_ == wqe.first_psn) {
      if (const auto fault = fault_of(wqe)) {
        stop_at_cursor(*fault);
        continue;
      }
    }
    if (const uint32_t count = middles_together(wqe, budget); count > 1) {
      const SendStatus status = send_middles(wqe, count, budget);
      if (status == SendStatus::kSent) await_acknowledgement(now);
      if (status == SendStatus::kBusy) return TransmitResult::kBusy;
      if (status != SendStatus::kFault) continue;
    }
    const SendStatus status = is_read(wqe)        ? send_read(wqe)
                              : is_atomic(wqe)    ? send_atomic(wqe)
                              : is_placement(wqe) ? send_placement(wqe)
                                                  : send_data(wqe);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {
      stop_at_cursor(IBV_WC_LOC_PROT_ERR);
      continue;
    }
    --budget;
    await_acknowledgement(now);
    if (reads_not_named_ >= RepeatedReads::kNew) name_reads(budget);
  }
  if (reads_not_named_ > 0) name_reads(budget);
  // The packets that cannot be sent again have left the window, so a lost one may have room now.
  return stopped_ && can_repair() ? TransmitResult::kMore : TransmitResult::kIdle;
}

// It completes in its turn: at once, if all before it have. After going back it is passed over, not executed
// again. False: another process is still at the memory behind the key that was taken from it.
bool Requester::execute_here(SendWqe& wqe) {
  const memory::KeyTable& keys = *qp_.config().keys;
  if (!wqe.executed) {
    if (users_ == 0) {
      if (const auto fault = execute_locally(qp_, wqe)) {
        stop_at_cursor(*fault);
        return true;
      }
      users_ = keys.users();
    }
    if (!keys.are_gone(users_)) return false;
    users_ = 0;
  }
  executed(wqe);
  if (qp_.state() == IBV_QPS_SQD && head_ == assigned_) announce_drained();
  return true;
}

void Requester::executed(SendWqe& wqe) {
  wqe.executed = true;
  ++cursor_;
  retire_executed();
}

// The request at the cursor cannot be sent. It fails once those before it are done.
void Requester::stop_at_cursor(ibv_wc_status status) {
  if (cursor_ == head_) {
    fail_head(status);
  } else {
    stopped_ = status;
  }
}

// REQUIRES: has_unasked()
bool Requester::must_ask_now() const {
  if (!running_) return false;
  // A timer ends these, and then more is sent or this is true.
  if (rnr_deadline_ != kNever || paced_until_ != kNever) return false;
  // If the window became too small, a probe asks, where there is one.
  return stopped_ ? true : probe_deadline_ == kNever && !can_send_new();
}

// Sends the last packet once more, to ask. If its memory is gone, too, it stops there, and the one before it
// asks: down to the last that asked before, which will be acknowledged. REQUIRES: has_unasked()
void Requester::ask_again() {
  if (cursor_ == assigned_ || next_ == ring().at(cursor_).first_psn) {
    do --cursor_;
    while (ring().at(cursor_).executed);  // without packets
  }
  inflight_ -= std::min(inflight_, flight_bytes(ring().at(cursor_), next_ - 1, next_));
  next_ = next_ - 1;
  asks_next_ = true;
  stopped_.reset();
}

void Requester::drain() {
  if (!running_) return;
  if (head_ == assigned_) {
    announce_drained();
  } else if (cursor_ == assigned_ && has_unasked()) {
    ask_again();
  }
}

void Requester::announce_drained() {
  if (qp_.attributes().notify_drained) qp_.emit(IBV_EVENT_SQ_DRAINED);
}

void Requester::hold_new(bool on) {
  holds_new_ = on;
  if (on) ask_for_the_last();
}

// What was to follow, and to ask for the acknowledgement, does not follow now.
void Requester::ask_for_the_last() {
  const bool sent_all = running_ && !next_.is_before(highest_);
  if (sent_all && has_unasked()) ask_again();
}

// Whether another packet will surely be sent right after this one, which can then carry the request for an
// acknowledgement. (On a long path it may do so after a pause for its pace: that is little of a round trip.
// Should the window become so small meanwhile that it may not, a probe asks.)
bool Requester::more_follows(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const {
  if (holds_new() && !(next_ + packets).is_before(highest_)) return false;
  const uint32_t cost = bytes + packets * sizes_.charge;
  if (inflight_ + cost + full_packet() > window_) return false;
  if (next_ + packets - unacked_ >= max_packets()) return false;
  if (flow_ && runs_unasked_ <= kPair && !flow_->may_send_after(cost, sending_at_)) return false;
  if (!ends) return true;
  if (last + 1 == ring().posted()) return false;
  if (qp_.state() != IBV_QPS_RTS && last + 1 == assigned_) return false;
  const SendWqe& following = ring().at(last + 1);
  return is_data(following) && !following.has_flag(IBV_SEND_FENCE);
}

// How much is sent before an acknowledgement is asked for, once what costs so much has been sent: a run, for
// the receiver to work on it while the next is made; or two, and more where the window has many, if it has
// room for what they lack. To acknowledge costs the receiver a quarter of what it does for a run.
uint32_t Requester::asks_after(uint32_t cost) const {
  const uint32_t run = sizes_.run_bytes;
  const uint32_t most = runs_unasked_ * run;
  const uint32_t since = since_ack_request_ + cost;
  const bool has_room = inflight_ + cost + (most - std::min(most, since)) <= window_;
  return flow_ && window_ >= kLeastRunsForPairs * run && has_room ? most : std::min(run, window_ / 2);
}

// Whether a packet that is sent now is to ask for an acknowledgement.
bool Requester::must_ask(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const {
  const uint32_t cost = bytes + packets * sizes_.charge;
  return asks_next_ || since_ack_request_ + cost >= asks_after(cost) ||
         !more_follows(packets, bytes, ends, last);
}

// So many may stay here until the peer fetches them, if more than would go joined. Never a message's last:
// who waits for its last byte to change finds all the others there, which a copy by the kernel does not
// promise. And nothing that is sent again: the peer may have failed to fetch it.
uint32_t Requester::packets_to_lend(const SendWqe& wqe, uint32_t index) const {
  if (sizes_.lent == 0 || wqe.length < kLeastLent || !lends_ || wqe.is_inline()) return 0;
  if (next_.is_before(highest_) || qp_.route().direct == nullptr) return 0;
  const uint32_t most = std::min(sizes_.lent, packets_of(wqe, mtu()) - index - 1);
  return most > sizes_.joined && qp_.route().direct->lends() ? most : 0;
}

SendStatus Requester::send_data(SendWqe& wqe) {
  DataPacket packet;
  const auto index = static_cast<uint32_t>(next_ - wqe.first_psn);
  const uint32_t lent = packets_to_lend(wqe, index);
  // The memory of others may be gone. The packet alone was sent before.
  const uint32_t joined = asks_next_ ? 1 : sizes_.joined;
  const uint32_t most = lent > 0 ? lent : joined;
  if (!make_data_packet(qp_, service_, wqe, index, next_, most, packet)) return SendStatus::kFault;
  const uint32_t cost = packet.bytes + packet.count * sizes_.charge;
  packet.headers.ack_request = must_ask(packet.count, packet.bytes, packet.ends, cursor_);
  const SendStatus status = qp_.send_out({.path = qp_.attributes().path,
                                          .headers = packet.headers,
                                          .payload = packet.pieces.get(),
                                          .payload_bytes = packet.bytes,
                                          .count = packet.count,
                                          .lent = lent > 0,
                                          .follows_longer = goes_with_first(wqe, index)});
  if (status != SendStatus::kSent) return status;
  sent(wqe, next_ + packet.count, packet.bytes, packet.count);
  note_question(packet.headers.ack_request, cost);
  return status;
}

// The First of an RDMA WRITE is longer than the others, so it ends a run, or has one of its own. Where all
// the others but one fill runs to the last packet, that one goes with the First: of 64 KiB at path MTU 1024
// they are two runs then, and not three.
bool Requester::goes_with_first(const SendWqe& wqe, uint32_t index) const {
  if (index != 1 || !is_write(wqe) || sizes_.joined != 1) return false;
  const uint32_t others = packets_of(wqe, mtu()) - 1;
  return others > 1 && others % sizes_.run_packets == 1;
}

uint32_t Requester::offset_at(const SendWqe& wqe, Psn psn) const {
  return offset_of(wqe, static_cast<uint32_t>(psn - wqe.first_psn), mtu());
}

// The part that has this PSN.
Requester::Part Requester::part_of(const SendWqe& wqe, Psn psn) {
  if (!is_read(wqe)) return {psn, psn + 1};
  const Psn past = wqe.last_psn + 1;
  const uint32_t packets = wqe.part_packets;
  const Psn first = wqe.first_psn + static_cast<uint32_t>(psn - wqe.first_psn) / packets * packets;
  const Psn limit = first + packets;
  return {first, limit.is_after(past) ? past : limit};
}

SendStatus Requester::send_read(SendWqe& wqe) {
  const Psn limit = part_of(wqe, next_).limit;
  const SendStatus status = put_read(wqe, next_, limit);
  if (status != SendStatus::kSent) return status;
  note_read(wqe, limit);
  sent_request(wqe, limit, 0);
  return status;
}

// What asks for [from, limit) of a READ.
RepeatedReads::Request Requester::read_of(const SendWqe& wqe, Psn from, Psn limit) const {
  const uint32_t offset = offset_at(wqe, from);
  return {from, wqe.remote_address + offset, wqe.rkey, offset_at(wqe, limit) - offset};
}

// The local keys of READs and atomics are looked at when the answer comes, as Linux rxe and mlx5 do: the peer
// carries the request out, and if there is no place for the answer it fails here.
SendStatus Requester::put_read(const SendWqe& wqe, Psn from, Psn limit) {
  const RepeatedReads::Request request = read_of(wqe, from, limit);
  roce::Headers headers = headers_for(Operation::kReadRequest, request.psn);
  headers.ack_request = true;
  headers.xrc_srq = wqe.remote_srqn;
  headers.address = request.address;
  headers.rkey = request.rkey;
  headers.dma_length = request.bytes;
  return qp_.send_out({qp_.attributes().path, headers, {}, 0});
}

// A request that is answered by more than an acknowledgement has left.
void Requester::sent_request(SendWqe& wqe, Psn past, uint32_t payload_bytes) {
  ++reads_outstanding_;
  sent(wqe, past, payload_bytes, 1);
  note_question(true, 0);
}

SendStatus Requester::send_atomic(SendWqe& wqe) {
  const SendStatus status = put_atomic(wqe);
  if (status == SendStatus::kSent) sent_request(wqe, next_ + 1, 0);
  return status;
}

SendStatus Requester::put_atomic(const SendWqe& wqe) {
  const bool compares = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  roce::Headers headers =
      headers_for(compares ? Operation::kCompareSwap : Operation::kFetchAdd, wqe.first_psn);
  headers.ack_request = true;
  headers.xrc_srq = wqe.remote_srqn;
  headers.address = wqe.remote_address;
  headers.rkey = wqe.rkey;
  headers.swap_add = compares ? wqe.swap : wqe.compare_add;
  headers.compare = compares ? wqe.compare_add : 0;
  return qp_.send_out({qp_.attributes().path, headers, {}, 0});
}

SendStatus Requester::send_placement(SendWqe& wqe) {
  const SendStatus status = put_placement(wqe);
  if (status == SendStatus::kSent) sent_request(wqe, next_ + 1, wqe.length);
  return status;
}

SendStatus Requester::put_placement(const SendWqe& wqe) {
  Pieces pieces;
  roce::Headers headers;
  if (wqe.opcode == queues::kFlushOpcode) {
    const queues::FlushRange range = queues::flush_range(wqe);
    headers = headers_for(Operation::kFlush, wqe.first_psn);
    headers.flush_type = range.placement;
    headers.flush_selectivity = range.selectivity;
    headers.dma_length = static_cast<uint32_t>(range.length);
  } else {
    headers = headers_for(Operation::kAtomicWrite, wqe.first_psn);
    headers.dma_length = wqe.length;
    if (wqe.is_inline()) {
      pieces.add({wqe.inline_data(), wqe.length});
    } else if (!gather(qp_.keys(), qp_.config().pd, wqe.sges(), 0, wqe.length, 0, pieces)) {
      return SendStatus::kFault;
    }
  }
  headers.ack_request = true;
  headers.xrc_srq = wqe.remote_srqn;
  headers.address = wqe.remote_address;
  headers.rkey = wqe.rkey;
  return qp_.send_out({qp_.attributes().path, headers, pieces.get(), wqe.length});
}

void Requester::sent(SendWqe& wqe, Psn past, uint32_t payload_bytes, uint32_t packets) {
  qp_.count(kSentPackets, packets);
  qp_.count(kSentBytes, payload_bytes);
  if (next_.is_before(highest_)) {
    const uint32_t again = std::min(packets, static_cast<uint32_t>(highest_ - next_));
    VERBENA_PROBE(retransmission, qp_.config().qpn.value(), next_.value(), again);
    qp_.count(kRetransmittedPackets, again);
  }
  const uint32_t bytes = flight_bytes(wqe, next_, past);
  if (flow_) {
    flow_->sent(next_, static_cast<uint32_t>(past - next_), bytes, next_.is_before(highest_), inflight_,
                sending_at_);
  }
  inflight_ += bytes;
  next_ = past;
  if (highest_.is_before(next_)) highest_ = next_;
  if (next_ == wqe.last_psn + 1) ++cursor_;
}

}  // namespace verbena::transport
