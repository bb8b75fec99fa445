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
#include "control/client/capture_client.h"
#include "observe/capture/frame_builder.h"
#include "observe/capture/pcapng.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_reader.h"

namespace verbena::commands {

// Which packets are wanted, and how much of each.
struct CaptureChoice {
  uint32_t snap_bytes = 262'144;  // of a frame, from its Ethernet header on
  std::string link{};             // empty: any
  pid_t pid = 0;                  // that has sent it, or is to get it; 0: any
  uint64_t count = std::numeric_limits<uint64_t>::max();

  // What of a payload is needed for that.
  uint32_t payload_snap_bytes() const;
};

// Makes of what processes write into their rings a pcapng file, in the order of time. Reads rings, and waits
// for nothing; its caller says when, and takes what is to go into the file out of writer().
class Recorder {
 public:
  Recorder(CaptureChoice choice, CaptureLinks& links);
  ~Recorder();

  // A slot is captured from now on, or no longer.
  void begin(control::CaptureNews news);
  void end(uint32_t slot);

  // Writes the packets that were sent until `limit`, a thousand records at most; those of different processes
  // in their order. Answers how many records there were, of packets that are not wanted, too.
  uint64_t record(TimePoint limit, TimePoint now);
  // Nothing more comes: the statistics.
  void finish();

  capture::PcapngWriter& writer() { return writer_; }
  uint64_t written() const { return written_; }
  bool has_processes() const { return !sources_.empty(); }
  bool is_complete() const { return written_ >= choice_.count; }
  // Packets for which a process found no room, as they came faster than they were read.
  uint64_t left_out() const;
  // Processes whose rings could not be understood; each is told of once.
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
  const capture::WallTime to_wall_;  // from the monotonic clock
  const TimePoint began_;
  capture::PcapngWriter writer_;
  capture::FrameBuilder builder_;
  std::vector<std::unique_ptr<Source>> sources_;
  struct Process {
    pid_t pid = 0;
    std::string name;
  };
  std::map<uint32_t, Process> processes_;  // by slot; those that have ended stay until another has the slot
  std::unordered_map<uint64_t, std::string> comments_;
  std::vector<std::string> complaints_;
  uint64_t written_ = 0;
  uint64_t left_out_by_retired_ = 0;
};

}  // namespace verbena::commands
