// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/command_client.h"
#include "control/model/link.h"
#include "observe/capture/frame_builder.h"
#include "observe/capture/pcapng.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_reader.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::commands {

// Finds the queue pair that sent a captured packet. Packets of connected QPs name only the destination QP. So
// this class searches the status page of the sender's slot for the QP that is connected to the destination.
// Results are cached for a second. A result may be wrong if a QP was connected to another peer within that
// second.
class SendingQps {
 public:
  explicit SendingQps(UniqueFd status_page) : page_(std::move(status_page)) {}

  // Returns the number of the queue pair that sends to `destination`, or 0 if it is unknown.
  roce::Qpn that_sends_to(roce::Qpn destination, TimePoint now);

 private:
  void refresh(TimePoint now);

  const UniqueFd page_;
  std::unordered_map<uint32_t, roce::Qpn> by_destination_;
  TimePoint read_at_ = TimePoint::min();
};

// Finds the links of this host that have a given GID, and the MAC address of the first such link, for
// `verbena capture`. Asks the agent about unknown GIDs, at most once a second.
class CaptureLinks {
 public:
  using Ask = std::function<std::vector<control::Link>()>;
  explicit CaptureLinks(Ask ask) : ask_(std::move(ask)) {}

  // Returns the MAC address of the first link with this GID, or zeros if there is no such link or address.
  capture::MacAddress mac_of(const roce::Address& address, TimePoint now);
  // Whether the link named `link` has the source or the destination address of `path` as a GID.
  bool is_on(const std::string& link, const roce::Path& path, TimePoint now);

 private:
  struct Less {
    bool operator()(const roce::Address& a, const roce::Address& b) const { return a.bytes < b.bytes; }
  };
  struct Owner {
    std::vector<std::string> links;
    capture::MacAddress mac{};
  };

  const Owner* find(const roce::Address& address, TimePoint now);
  void refresh(TimePoint now);

  const Ask ask_;
  std::map<roce::Address, Owner, Less> owners_;
  TimePoint next_refresh_ = TimePoint::min();
};

// The user's selection of packets, and the number of bytes to record of each.
struct CaptureChoice {
  uint32_t snap_bytes = 262'144;  // maximum per frame, Ethernet header included
  std::string link{};             // packets of this link; empty for any link
  pid_t pid = 0;                  // packets that this process sends or receives; 0 for any process
  uint64_t count = std::numeric_limits<uint64_t>::max();

  // Returns the payload bytes that fit into `snap_bytes` after the shortest headers, at most 4096.
  uint32_t payload_snap_bytes() const;
};

// Merges the packets in the capture rings of several processes into one pcapng file, ordered by time. Never
// waits for packets or for the file: the caller decides when record() reads the rings, and writes writer()'s
// pending bytes to the file. May wait for CaptureLinks, which asks the agent for the MAC address of an
// unknown GID. Single-threaded.
class Recorder {
 public:
  Recorder(CaptureChoice choice, CaptureLinks& links);
  ~Recorder();

  // Start and stop capturing a slot, when its process begins or ends. `news` has the slot's number, capture
  // ring and status page, and its process. After end(), record() still reads the packets that are left in the
  // slot's ring.
  void begin(control::CaptureNews news);
  void end(uint32_t slot);

  // Writes packets with times up to `limit`, in the order of their times. Reads at most 1024 records, each of
  // one or more packets. Returns the number of records read. This includes records that are not written
  // because the user's CaptureChoice excludes them.
  uint64_t record(TimePoint limit, TimePoint now);
  // Writes the capture's statistics at the end of the file. Call it after the last record().
  void finish();

  capture::PcapngWriter& writer() { return writer_; }
  uint64_t written() const { return written_; }
  bool has_processes() const { return !sources_.empty(); }
  bool is_complete() const { return written_ >= choice_.count; }
  // Returns the number of packets that processes did not record, mostly because their ring was full.
  uint64_t left_out() const;
  // Returns the new messages about processes that cannot be captured, because they have no ring or a
  // malformed one. Returns each message once.
  std::vector<std::string> take_complaints();

 private:
  struct Source;

  void retire(Source& source);
  void write(Source& source, const capture::Record& record, TimePoint now);
  bool is_wanted(const Source& source, const capture::Record& record, TimePoint now);
  const std::string& comment(uint32_t slot, roce::Qpn from, const capture::Record& record);
  std::string process_at(uint32_t slot) const;
  pid_t pid_at(uint32_t slot) const;
  capture::WallTime wall(TimePoint time) const { return time.time_since_epoch() + to_wall_; }

  const CaptureChoice choice_;
  CaptureLinks& links_;
  const capture::WallTime to_wall_;  // wall-clock time minus monotonic time
  const TimePoint began_;
  capture::PcapngWriter writer_;
  capture::FrameBuilder builder_;
  std::vector<std::unique_ptr<Source>> sources_;
  struct Process {
    pid_t pid = 0;
    std::string name;
  };
  std::map<uint32_t, Process> processes_;  // by slot; an ended process stays until its slot is reused
  std::unordered_map<uint64_t, std::string> comments_;
  std::vector<std::string> complaints_;
  uint64_t written_ = 0;
  uint64_t left_out_by_retired_ = 0;
};

}  // namespace verbena::commands
