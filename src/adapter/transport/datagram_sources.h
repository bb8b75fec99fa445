// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/incast.h"
#include "adapter/transport/receiver_report.h"
#include "adapter/transport/recent_peers.h"
#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// A remote QP that sends datagrams to ours, and either asked for receiver reports or had its packets marked
// by a switch.
struct DatagramSource {
  roce::Path back;  // path from our QP to it
  roce::Qpn qpn;
  roce::Psn asked_with;  // datagram count in its latest report request
  uint32_t come = 0;     // datagrams received since that request
  uint32_t missing = 0;  // datagrams missing from the first to the latest request; modulo 2^32
  bool has_asked = false;
  bool owes_receipt = false;  // a receiver report is due
  CongestionNotices notices;
  IncastShare incast;

  bool is_due() const { return owes_receipt || notices.is_due(); }
};

// Remembers the remote QPs that recently requested reports of a datagram queue pair, or whose packets came
// with ECN marks. Tracks which of these QPs are owed a report or a CNP.
//
// For the shard's lock holder.
class DatagramSources {
 public:
  // Returns nullptr if the sender is not remembered.
  DatagramSource* find(const roce::Path& incoming, roce::Qpn sender) {
    return sources_.find(incoming.source, sender);
  }
  // Counts the missing datagrams and makes a report due, unless the request is older than the latest one. The
  // report goes back along the path of `incoming`.
  void on_request(const ReportRequest& request, const roce::Path& incoming);
  // A packet of `sender` came with an ECN mark. Makes a CNP due (CongestionNotices).
  void on_marked(const roce::Path& incoming, roce::Qpn sender, TimePoint now);
  // Makes a report to the source due.
  void owe(DatagramSource& source);

  bool is_due() const { return due_ != 0; }
  // Returns a source to which a report or a CNP is due. REQUIRES: is_due()
  DatagramSource& first_due() { return sources_.at(static_cast<uint32_t>(__builtin_ctzll(due_))); }
  // Notes that nothing is due to the source any more: its report and CNP were sent, or another QP takes its
  // entry.
  void settle(const DatagramSource& source) { due_ &= ~bit_of(source); }

 private:
  static_assert(RecentPeers<DatagramSource>::kPlaces == 64, "due_ has a bit for each");

  DatagramSource& get(const roce::Path& incoming, roce::Qpn sender);
  uint64_t bit_of(const DatagramSource& source) const { return uint64_t{1} << sources_.place_of(source); }

  RecentPeers<DatagramSource> sources_;
  uint64_t due_ = 0;  // a bit per place
};

}  // namespace verbena::transport
