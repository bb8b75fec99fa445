// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/datagram_report.h"
#include "adapter/transport/incast_meter.h"
#include "adapter/transport/recent_peers.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// One queue pair that sends datagrams to ours, and wants to know what has come of them.
struct DatagramSource {
  roce::Path back;  // to it
  roce::Qpn qpn;
  roce::Psn asked_with;  // the count of its latest request
  uint32_t come = 0;     // datagrams since then
  uint32_t missing = 0;  // before it, since the first request; modulo 2^32
  bool has_asked = false;
  bool owes_receipt = false;
  CongestionNotices notices;
  IncastShare incast;

  bool is_due() const { return owes_receipt || notices.is_due(); }
};

// Those that have asked a datagram queue pair of late, or whose datagrams came marked by a switch; and who of
// them is to hear something.
//
// For the shard's lock holder.
class DatagramSources {
 public:
  // nullptr: it has not asked.
  DatagramSource* find(const roce::Path& incoming, roce::Qpn sender) {
    return sources_.find(incoming.source, sender);
  }
  // By how `incoming` came it is answered.
  void on_request(const ReportRequest& request, const roce::Path& incoming);
  void on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now);
  // It is to have a receipt without having asked.
  void owe(DatagramSource& source);

  bool is_due() const { return due_ != 0; }
  // REQUIRES: is_due()
  DatagramSource& first_due() { return sources_.at(static_cast<uint32_t>(__builtin_ctzll(due_))); }
  // It has heard all there is.
  void settle(const DatagramSource& source) { due_ &= ~bit_of(source); }

 private:
  static_assert(RecentPeers<DatagramSource>::kPlaces == 64, "due_ has a bit for each");

  DatagramSource& get(const roce::Path& incoming, roce::Qpn sender);
  uint64_t bit_of(const DatagramSource& source) const { return uint64_t{1} << sources_.place_of(source); }

  RecentPeers<DatagramSource> sources_;
  uint64_t due_ = 0;  // by place
};

}  // namespace verbena::transport
