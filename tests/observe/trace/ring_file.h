// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "control/protocol/trace_ring.h"
#include "observe/trace/reader.h"
#include "observe/trace/recorder.h"

namespace verbena::trace {

// The trace rings of a slot in a memfd, mapped for writing.
class RingFile {
 public:
  RingFile() : file_(::memfd_create("trace-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), sizeof(protocol::TraceRings)), 0);
    void* const at =
        ::mmap(nullptr, sizeof(protocol::TraceRings), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    rings_ = static_cast<protocol::TraceRings*>(at);
  }
  ~RingFile() { ::munmap(rings_, sizeof(protocol::TraceRings)); }
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  protocol::TraceRings& rings() { return *rings_; }
  int fd() const { return file_.get(); }
  Reader reader() const { return {fd(), 0}; }

 private:
  UniqueFd file_;
  protocol::TraceRings* rings_ = nullptr;
};

}  // namespace verbena::trace
