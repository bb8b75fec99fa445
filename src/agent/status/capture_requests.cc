// SPDX-License-Identifier: Apache-2.0
#include "agent/status/capture_requests.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <unistd.h>

#include "agent/cm/refusals.h"
#include "agent/sessions/held_files.h"
#include "base/format.h"
#include "base/text.h"
#include "observe/capture/ring_file.h"

namespace verbena::agent {
namespace {

using protocol::CaptureNewsReply;

// Maximum number of unfetched news, each with a ring, beside the leased slots.
constexpr size_t kMaxNews = 4096;
// From this number of unfetched news on, slots that have come and gone in the meantime are dropped. A ring
// takes two megabytes, and a process can take and return slots without end.
constexpr size_t kMuchNews = 256;

}  // namespace

RequestResult<> CaptureRequests::start_capture(const Lessee& client,
                                               const protocol::StartCaptureRequest& request) {
  if (client.uid != 0 && client.uid != ::geteuid()) {
    return refuse(EPERM, "only root may capture what root's agent serves");
  }
  if (capturer_) {
    return refuse(EBUSY,
                  verbena::format("process {} is capturing; there is one capture at a time", capturer_->pid));
  }
  capturer_ = client;
  snap_bytes_ = request.snap_bytes;
  for (auto slot = slots_.find(0); slot; slot = slots_.find(slot->index + 1)) begin(*slot);
  return Reply<>();
}

RequestResult<CaptureNewsReply> CaptureRequests::get_capture_news(const Lessee& client,
                                                                  const protocol::GetCaptureNewsRequest&) {
  if (!capturer_ || capturer_->session != client.session) {
    return refuse(EINVAL, "this session does not capture");
  }
  Reply<CaptureNewsReply> reply;
  given_ = News();
  if (news_.empty()) return reply;
  given_ = std::move(news_.front());
  news_.pop_front();
  reply.message = given_.message;
  if (given_.ring) reply.fds = {given_.ring.get(), given_.page.get()};
  return reply;
}

bool CaptureRequests::wants(const LeasedSlot& slot) const {
  // Leased by a former agent, and its process has not reconnected yet. slot_changed() is called when it does.
  if (slot.lessee.session == 0) return false;
  return capturer_->uid == 0 || capturer_->uid == slot.lessee.uid;
}

void CaptureRequests::slot_changed(uint32_t slot) {
  if (!capturer_) return;
  const auto leased = slots_.find(slot);
  const bool is_lent = leased && leased->index == slot;
  const auto known = captured_.find(slot);
  if (known != captured_.end()) {
    if (is_lent && known->second == leased->lessee.session) return;
    end(slot);
  }
  if (is_lent) begin(*leased);
}

void CaptureRequests::begin(const LeasedSlot& slot) {
  if (!wants(slot) || news_.size() >= kMaxNews) return;
  News news;
  news.message.slot = slot.index;
  news.message.pid = slot.lessee.pid;
  news.message.uid = slot.lessee.uid;
  store_text(news.message.program, slot.lessee.program);
  const auto handed = hand_ring(slot, news);
  news.message.kind = handed ? CaptureNewsReply::kBegun : CaptureNewsReply::kRefused;
  news.message.error = handed ? 0 : handed.error().code;
  if (handed) captured_[slot.index] = slot.lessee.session;
  news_.push_back(std::move(news));
}

Result<void> CaptureRequests::hand_ring(const LeasedSlot& slot, News& news) {
  if (slot.lessee.protocol_version < protocol::kFirstVersionWithCaptures) return fail(EOPNOTSUPP);
  news.page = reopen_read_only(slot.page);
  if (!news.page) return fail(errno);
  auto ring = capture::make_ring_file(snap_bytes_);
  if (!ring) return fail(ring.error().code);
  UniqueFd theirs(::fcntl(ring->get(), F_DUPFD_CLOEXEC, 0));
  if (!theirs) return fail(errno);
  if (!tell_(slot.lessee.session, {slot.index, std::move(theirs)})) return fail(EAGAIN);
  news.ring = std::move(*ring);
  return {};
}

void CaptureRequests::end(uint32_t slot) {
  captured_.erase(slot);
  if (news_.size() >= kMuchNews) {
    const auto unseen = std::find_if(news_.rbegin(), news_.rend(), [&](const News& each) {
      return each.message.slot == slot && each.message.kind == CaptureNewsReply::kBegun;
    });
    if (unseen != news_.rend()) {
      news_.erase(std::next(unseen).base());
      return;
    }
  }
  News news;
  news.message.kind = CaptureNewsReply::kEnded;
  news.message.slot = slot;
  news_.push_back(std::move(news));
}

void CaptureRequests::session_went(uint64_t session) {
  if (!capturer_ || capturer_->session != session) return;
  capturer_.reset();
  for (const auto& [slot, owner] : std::exchange(captured_, {})) tell_(owner, {slot, {}});
  news_.clear();
  given_ = News();
}

}  // namespace verbena::agent
