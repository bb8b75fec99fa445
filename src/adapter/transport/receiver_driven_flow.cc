// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/receiver_driven_flow.h"

namespace verbena::transport {

namespace {

using roce::Psn;

// Report requests per window, so that each RTT is measured.
constexpr uint32_t kAsksOfWindow = 8;
// Divides the last known rate, once the peer has stopped reporting.
constexpr uint64_t kPartOfRate = 16;

roce::Path way_back(const roce::Path& incoming) {
  roce::Path path;
  path.source = incoming.destination;
  path.destination = incoming.source;
  path.interface_index = incoming.interface_index;
  return path;
}

}  // namespace

void ReceiverDrivenFlow::begin(const Traits& traits, const Settings& settings, roce::Psn first) {
  *this = ReceiverDrivenFlow();
  traits_ = traits;
  pacer_.reset(traits);
  packet_ = settings.mtu + traits.charge_per_packet;
  run_ = traits.packets_in_burst(settings.mtu) * packet_;
  least_timeout_ = settings.least_timeout;
  next_ = told_ = first;
  if (traits.lossless || !settings.listens) return;
  flow_ = congestion::Flow::make(settings.kind, {packet_, run_, traits.burst_charge()});
}

uint64_t ReceiverDrivenFlow::window() const {
  const uint64_t least = senders_ > kManySenders ? kLeastOfMany : kLeastWindow;
  return std::max(flow_->window(), least * packet_);
}

bool ReceiverDrivenFlow::must_ask() const {
  if (!flow_ || !is_told_) return false;
  return since_asked_ + packet_ >= std::min<uint64_t>(run_, window() / kAsksOfWindow) ||
         in_flight() + 2 * uint64_t{packet_} > window() || next_ - told_ >= kMaxInFlight - 1;
}

void ReceiverDrivenFlow::sent(uint32_t bytes, bool asked, TimePoint now) {
  pacer_.sent(bytes + traits_.charge_per_packet);
  if (flow_) flow_->sent(next_, 1, packet_, false, in_flight(), now);
  ++next_;
  since_asked_ = asked ? 0 : since_asked_ + packet_;
  if (silent_at_ == kNever && is_full()) await_word(now);
  if (silent_at_ == kNever && is_blind_ && is_told_) silent_at_ = now + kPatience;
  // A peer that does not report is not waited for: packets that have left are forgotten.
  if (is_blind_ && flow_ && next_ - told_ > kFurthest / 2) give_up_flight();
}

void ReceiverDrivenFlow::end_run(bool is_all) {
  if (!flow_) return;
  flow_->end_run();
  if (is_all) flow_->ran_dry(in_flight());
}

void ReceiverDrivenFlow::await_word(TimePoint now) {
  const Duration usual = std::max(flow_->round_trip().timeout(), least_timeout_);
  silent_at_ = now + (is_told_ ? usual * (1 << silences_) : kPatience);
}

// Counts packets in flight as gone; how many of them are lost stays unknown.
void ReceiverDrivenFlow::give_up_flight() {
  told_ = next_;
  counts_ = false;
  since_asked_ = 0;
  flow_->settled(next_);
}

void ReceiverDrivenFlow::on_timer(TimePoint now) {
  if (now < silent_at_) return;
  silent_at_ = kNever;
  // Perhaps the confirmations were lost.
  thanks_ = 0;
  thanks_due_ = is_told_;
  give_up_flight();
  if (is_blind_) return;
  if (is_told_) flow_->timed_out();
  is_blind_ = !is_told_ || ++silences_ >= kMaxSilences;
  if (!is_blind_) return;
  pacer_.reset(traits_);
  if (is_told_ && flow_->rate() != 0) pacer_.slow_down(flow_->rate() / kPartOfRate);
}

bool ReceiverDrivenFlow::on_report(const ReceiverReport& report, TimePoint now) {
  const int32_t behind = next_ - report.expected;
  if (!flow_ || behind < 0 || behind >= kFurthest) return false;
  // A report that confirms nothing new may be a replay: it neither ends a timeout nor proves that the peer
  // still receives.
  if (!is_told_ || report.expected.is_after(told_)) {
    silent_at_ = kNever;
    is_blind_ = false;
    silences_ = 0;
  }
  is_told_ = true;
  thanks_due_ = thanks_ < kMaxThanks;
  flow_->told(report.incast);
  senders_ = report.incast.senders;
  if (!report.expected.is_before(told_)) note(report, now);
  if (is_full() && silent_at_ == kNever) await_word(now);
  return true;
}

void ReceiverDrivenFlow::note(const ReceiverReport& report, TimePoint now) {
  const Psn before = std::exchange(told_, report.expected);
  const uint32_t missing = report.missing - std::exchange(missing_, report.missing);
  const int32_t news = told_ - before;
  if (std::exchange(counts_, true) && news > 0) {
    // A packet that comes late is not missing any more: `missing` may be negative.
    const int32_t lost = std::clamp(static_cast<int32_t>(missing), 0, news);
    flow_->took_time(before, told_);
    flow_->arrived(static_cast<uint64_t>(news - lost) * packet_);
    flow_->answered(in_flight(), now);
    if (lost > 0) flow_->lost(static_cast<uint64_t>(lost) * packet_);
  }
  flow_->settled(told_);
}

void ReceiverDrivenFlow::on_mark(TimePoint now) {
  if (!flow_) return;
  flow_->marked();
  if (is_full() && silent_at_ == kNever) await_word(now);
}

DatagramSource& DatagramSources::get(const roce::Path& incoming, roce::Qpn sender) {
  const auto [source, is_new] = sources_.get(incoming.source, sender);
  if (is_new) {
    settle(*source);  // nothing is due any more to the source that it replaces
    source->qpn = sender;
    source->back = way_back(incoming);
  }
  return *source;
}

// Compares the datagrams that came since the previous request with the number sent since. A request may
// overtake datagrams: the next request then corrects the count.
void DatagramSources::on_request(const ReportRequest& request, const roce::Path& incoming) {
  DatagramSource& source = get(incoming, request.sender);
  const int32_t sent = request.next - source.asked_with;
  const bool is_old = sent < 0 && sent > -ReceiverDrivenFlow::kMaxInFlight;
  if (source.has_asked && is_old) return;
  source.back = way_back(incoming);
  // A count far behind the previous one: the sender has started again, and nothing is counted.
  if (source.has_asked && sent >= 0) source.missing += static_cast<uint32_t>(sent) - source.come;
  source.has_asked = true;
  source.asked_with = request.next;
  source.come = 0;
  owe(source);
}

void DatagramSources::on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now) {
  DatagramSource& source = get(incoming, sender);
  source.notices.on_marked(now);
  if (source.notices.is_due()) due_ |= bit_of(source);
}

TimePoint DatagramFlow::may_send_at(TimePoint now) {
  if (!told_) {
    if (waits_until_ == TimePoint()) return now;
    if (now < waits_until_) return waits_until_;
    // Any queue has drained by now, so the request may get through.
    owes_request_ = true;
    waits_until_ = TimePoint();
    return now;
  }
  if (told_->deadline() <= now) {
    told_->on_timer(now);
    if (told_->has_given_up()) {
      forget();
      return now;
    }
  }
  if (told_->is_full()) return told_->deadline();
  return told_->may_send(now) ? now : told_->may_send_at();
}

// Perhaps only the path failed, so the destination gets one more wait.
void DatagramFlow::forget() {
  told_.reset();
  begins_at_ = next_;
  untold_ = 0;
  seldom_ = 0;
  waits_ = kMaxWaits - 1;
}

void DatagramFlow::sent(uint32_t bytes, TimePoint now) {
  ++next_;
  if (!told_) return sent_untold(bytes, now);
  const bool asks = told_->must_ask();
  told_->sent(bytes, asks, now);
  owes_request_ |= asks;
}

void DatagramFlow::sent_untold(uint32_t bytes, TimePoint now) {
  if (seldom_ == 0 && now - untold_since_ > kUntoldTime) {
    untold_ = 0;
    untold_since_ = now;
  }
  untold_ += bytes;
  if (untold_ < kUntoldBytes << 2 * seldom_) return;
  untold_ = 0;
  seldom_ = std::min(seldom_ + 1, kMaxSeldom);
  owes_request_ = true;
  if (waits_ == kMaxWaits) return;
  ++waits_;
  waits_until_ = now + kPatience;
}

bool DatagramFlow::on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings,
                             TimePoint now) {
  const int32_t behind = next_ - report.expected;
  if (behind < 0 || behind >= ReceiverDrivenFlow::kFurthest) return false;
  if (!told_) {
    if (report.expected.is_before(begins_at_)) return false;  // a replay
    waits_until_ = TimePoint();
    told_.emplace();
    told_->begin(traits_, settings, next_);
    told_->joins();
  }
  return told_->on_report(report, now);
}

}  // namespace verbena::transport
