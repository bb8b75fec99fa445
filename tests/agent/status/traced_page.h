// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/sessions/client_files.h"
#include "agent/slots/slot_table.h"
#include "agent/status/kept_traces.h"
#include "base/lingering_socket.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/protocol/status_page.h"
#include "observe/trace/recorder.h"

namespace verbena::agent {

// A slot's status page with trace events, as its process writes them.
class TracedPage {
 public:
  TracedPage() : file_(::memfd_create("page", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
    page_ = static_cast<protocol::StatusPage*>(
        ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
  }
  ~TracedPage() { ::munmap(page_, sizeof(protocol::StatusPage)); }
  TracedPage(const TracedPage&) = delete;
  TracedPage& operator=(const TracedPage&) = delete;

  int fd() const { return file_.get(); }
  void write(trace::Kind kind, size_t times = 1) {
    trace::Recorder recorder(page_->traces);
    for (size_t i = 0; i < times; ++i) recorder.note(roce::Qpn(0x11), kind, {i});
  }
  void write_details(size_t times) {
    trace::Recorder recorder(page_->traces);
    for (size_t i = 0; i < times; ++i) recorder.detail(roce::Qpn(0x11), trace::Kind::kPosted, {i});
  }

 private:
  UniqueFd file_;
  protocol::StatusPage* page_ = nullptr;
};

inline LeasedSlot slot_of(const TracedPage& page, uint64_t session, uid_t uid = 1000) {
  LeasedSlot slot;
  slot.index = 7;
  slot.page = page.fd();
  slot.lessee.session = session;
  slot.lessee.pid = static_cast<pid_t>(session);
  slot.lessee.uid = uid;
  slot.lessee.program = "test";
  return slot;
}

// Does what follows copies that users' threads have made. Waits for one.
inline void take_copies(ForeignCloser& closer) {
  pollfd made{closer.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&made, 1, 10'000), 1);
  for (const ForeignCloser::Done& done : closer.take_closed()) {
    if (done.task) done.task();
  }
}

// KeptTraces::keep(), and waits for the copy. REQUIRES: no other copy is being made for this user
inline void keep_copy(KeptTraces& kept, ForeignCloser& closer, const LeasedSlot& slot, bool in_order,
                      TimePoint now) {
  kept.keep(slot, in_order, now);
  const uid_t user = slot.lessee.uid;
  ASSERT_TRUE(test::becomes_true([&] { return closer.waiting(user) == 0; }));
  take_copies(closer);
}

}  // namespace verbena::agent
