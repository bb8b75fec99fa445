// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/datagram_flow.h"

namespace verbena::transport {

namespace {

roce::Path way_back(const roce::Path& incoming) {
  roce::Path path;
  path.source = incoming.destination;
  path.destination = incoming.source;
  path.interface_index = incoming.interface_index;
  return path;
}

}  // namespace

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

void DatagramSources::owe(DatagramSource& source) {
  source.owes_receipt = true;
  due_ |= bit_of(source);
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
