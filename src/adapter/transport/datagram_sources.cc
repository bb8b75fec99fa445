// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/datagram_sources.h"

#include "adapter/transport/receiver_driven_flow.h"

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

}  // namespace verbena::transport
