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

// A remote QP that sends datagrams to ours, and either asked for receiver reports or had its packets marked
// by a switch.
struct DatagramSource {
  roce::Path back;  // path to it
  roce::Qpn qpn;
  roce::Psn asked_with;  // the count in its latest request
  uint32_t come = 0;     // datagrams since that request
  uint32_t missing = 0;  // datagrams missing before it, since the first request; modulo 2^32
  bool has_asked = false;
  bool owes_receipt = false;
  CongestionNotices notices;
  IncastShare incast;

  bool is_due() const { return owes_receipt || notices.is_due(); }
};

// The remote QPs that recently asked a datagram queue pair for reports, or whose packets came with ECN marks.
// Knows which of them are owed a report or a CNP.
//
// For the shard's lock holder.
class DatagramSources {
 public:
  // nullptr: unknown.
  DatagramSource* find(const roce::Path& incoming, roce::Qpn sender) {
    return sources_.find(incoming.source, sender);
  }
  // Answers go back along the path of `incoming`.
  void on_request(const ReportRequest& request, const roce::Path& incoming);
  void on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now);
  // Makes a report to the source due.
  void owe(DatagramSource& source);

  bool is_due() const { return due_ != 0; }
  // REQUIRES: is_due()
  DatagramSource& first_due() { return sources_.at(static_cast<uint32_t>(__builtin_ctzll(due_))); }
  // Nothing is due to the source any more.
  void settle(const DatagramSource& source) { due_ &= ~bit_of(source); }

 private:
  static_assert(RecentPeers<DatagramSource>::kPlaces == 64, "due_ has a bit for each");

  DatagramSource& get(const roce::Path& incoming, roce::Qpn sender);
  uint64_t bit_of(const DatagramSource& source) const { return uint64_t{1} << sources_.place_of(source); }

  RecentPeers<DatagramSource> sources_;
  uint64_t due_ = 0;  // a bit per place
};

}  // namespace verbena::transport
