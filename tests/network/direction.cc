// SPDX-License-Identifier: Apache-2.0
#include "network/direction.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <poll.h>

#include "network/too_large.h"

namespace verbena::network {
namespace {

// Frames read before due ones are sent.
constexpr int kFramesAtOnce = 16;
// A frame up to this size is copied to memory of its own size: thousands of them may be under way.
constexpr uint32_t kSmallBytes = 16 * 1024;
constexpr Duration kLongestWait = std::chrono::seconds(1);

timespec timeout_until(TimePoint next) {
  const Duration left =
      std::clamp(next == kNever ? kLongestWait : next - MonotonicClock::now(), Duration{0}, kLongestWait);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {seconds.count(), (left - seconds).count()};
}

}  // namespace

Direction::Direction(const Tap& from, const Tap& to, const net::LinkSettings& settings, uint64_t seed,
                     const DirectionOptions& options)
    : from_(from), to_(to), options_(options), model_(settings, seed, MonotonicClock::now()) {}

bool Direction::run(int stop) {
  pollfd waited[] = {{from_.fd(), POLLIN, 0}, {stop, POLLIN, 0}};
  while (waited[1].revents == 0) {
    const int taken = take_frames();
    if (taken < 0) return false;
    deliver(MonotonicClock::now());
    timespec timeout{};
    if (taken < kFramesAtOnce) timeout = timeout_until(under_way_.empty() ? kNever : under_way_.top().at);
    ::ppoll(waited, 2, &timeout, nullptr);
  }
  return true;
}

int Direction::take_frames() {
  for (int taken = 0; taken < kFramesAtOnce; ++taken) {
    if (!room_) room_ = std::make_unique_for_overwrite<std::byte[]>(Tap::kMaxFrameBytes);
    Offload offload;
    const Tap::Read read = from_.read(offload, {room_.get(), Tap::kMaxFrameBytes});
    if (read.status == Tap::Read::Status::kGone) return -1;
    if (read.status == Tap::Read::Status::kNothing) return taken;
    admit(frame_of(offload, read.bytes), MonotonicClock::now());
  }
  return kFramesAtOnce;
}

// Makes a frame of the `bytes` bytes that were read into room_.
Direction::FramePointer Direction::frame_of(const Offload& offload, uint32_t bytes) {
  if (bytes > kSmallBytes) return std::make_shared<SuperFrame>(offload, std::move(room_), bytes);
  auto own = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::copy_n(room_.get(), bytes, own.get());
  return std::make_shared<SuperFrame>(offload, std::move(own), bytes);
}

// Passes each segment through the link separately. Consecutive segments with the same fate stay together.
void Direction::admit(const FramePointer& frame, TimePoint now) {
  std::optional<UnderWay> run;
  TimePoint run_begins;
  const auto end_run = [&] {
    if (run) send_off(std::move(*run));
    run.reset();
  };
  bool too_large = false;
  for (uint32_t k = 0; k < frame->segments(); ++k) {
    const net::Passage passage = model_.pass(now, frame->segment_bytes(k));
    too_large |= passage.fate == net::LinkFate::kTooLarge;
    if (!passage.arrived()) {
      end_run();
      continue;
    }
    const TimePoint at = passage.arrives[0];
    const bool corrupted = passage.corrupted && frame->is_ip();
    const bool joins = run && !corrupted && !run->corrupted && run->marked == passage.marked &&
                       at >= run->at && at - run_begins <= options_.join;
    if (!joins) {
      end_run();
      run = UnderWay{at, 0, frame, k, 0, passage.marked, corrupted, passage.damage};
      run_begins = at;
    }
    run->at = at;
    ++run->count;
    if (passage.copies == 2) {
      send_off({passage.arrives[1], 0, frame, k, 1, passage.marked, corrupted, passage.damage});
    }
  }
  end_run();
  if (too_large && options_.answer_too_large) answer_too_large(*frame);
}

void Direction::send_off(UnderWay&& piece) {
  piece.sequence = sequence_++;
  under_way_.push(std::move(piece));
}

void Direction::deliver(TimePoint now) {
  while (!under_way_.empty() && under_way_.top().at <= now) {
    write(under_way_.top());
    under_way_.pop();
  }
}

void Direction::write(const UnderWay& piece) {
  bool taken = false;
  if (piece.corrupted) {
    // Without checksum offload, so that the receiving host verifies the checksum.
    taken = to_.write({}, piece.frame->damaged(piece.first, piece.marked, piece.damage), {});
  } else {
    const SuperFrame::Run run = piece.frame->run(piece.first, piece.count, piece.marked);
    taken = to_.write(run.offload, run.headers(), run.payload);
  }
  if (!taken) refused_ += piece.count;
}

void Direction::answer_too_large(const SuperFrame& frame) {
  const std::vector<std::byte> answer = too_large_answer(frame, model_.settings().mtu);
  if (!answer.empty()) from_.write({}, answer, {});
}

}  // namespace verbena::network
