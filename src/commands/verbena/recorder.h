// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "commands/verbena/capture_links.h"
#include "commands/verbena/sending_qps.h"
#include "control/client/command_client.h"
#include "observe/capture/frame_builder.h"
#include "observe/capture/pcapng.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_reader.h"

namespace verbena::commands {

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
// blocks. The caller decides when record() reads the rings, and writes writer()'s pending bytes to the file.
// Single-threaded.
class Recorder {
 public:
  Recorder(CaptureChoice choice, CaptureLinks& links);
  ~Recorder();

  // Start and stop capturing a slot, when its process begins or ends. After end(), record() still reads the
  // packets that are left in the slot's ring.
  void begin(control::CaptureNews news);
  void end(uint32_t slot);

  // Writes packets with times up to `limit`, in the order of their times. Reads at most 1024 records, each of
  // one or more packets. Returns the number of records read, including those that the choice excludes.
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
