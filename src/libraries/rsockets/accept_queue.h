// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace verbena::rsockets {

// What waits at a listening rsocket: requests that were not answered yet, streams whose connection is being
// set up, and streams to be accepted. As with TCP, the backlog bounds the last two; a request beyond it
// waits, with its sender repeating it, and holds no resources but itself. Thread-safe.
template <class Request, class Stream>
class AcceptQueue {
 public:
  explicit AcceptQueue(size_t backlog) : backlog_(backlog) {}
  static constexpr size_t kMaxRequests = 1024;

  void set_backlog(size_t backlog) {
    const std::lock_guard lock(mutex_);
    backlog_ = backlog;
  }

  // False when there are too many already.
  bool add_request(Request request) {
    const std::lock_guard lock(mutex_);
    if (closed_ || requests_.size() == kMaxRequests) return false;
    requests_.push_back(std::move(request));
    return true;
  }
  // Takes a request for which this holds: its sender has given up.
  template <class Predicate>
  std::optional<Request> withdraw(Predicate wanted) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(requests_.begin(), requests_.end(), wanted);
    if (found == requests_.end()) return std::nullopt;
    std::optional<Request> request(std::move(*found));
    requests_.erase(found);
    return request;
  }
  // A request to be answered now, if the backlog allows another; the caller owes opened() or given_up().
  std::optional<Request> next_request() {
    const std::lock_guard lock(mutex_);
    if (requests_.empty() || reserved_ + opening_.size() + ready_.size() >= backlog_) return std::nullopt;
    std::optional<Request> request(std::move(requests_.front()));
    requests_.pop_front();
    ++reserved_;
    return request;
  }
  void given_up() {
    const std::lock_guard lock(mutex_);
    --reserved_;
  }
  // False when the listener was closed meanwhile.
  bool opening(std::shared_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (closed_) return false;
    opening_.push_back(std::move(stream));
    return true;
  }

  // The stream's connection stands: it can be accepted.
  bool opened(const Stream* stream) {
    const std::lock_guard lock(mutex_);
    auto taken = take_opening(stream);
    if (!taken) return false;
    ready_.push_back(std::move(taken));
    return true;
  }
  // It never will.
  std::shared_ptr<Stream> failed(const Stream* stream) {
    const std::lock_guard lock(mutex_);
    return take_opening(stream);
  }

  bool has_ready() {
    const std::lock_guard lock(mutex_);
    return !ready_.empty();
  }
  std::shared_ptr<Stream> accept() {
    const std::lock_guard lock(mutex_);
    if (ready_.empty()) return nullptr;
    auto stream = std::move(ready_.front());
    ready_.pop_front();
    return stream;
  }

  struct Rest {
    std::deque<Request> requests;
    std::vector<std::shared_ptr<Stream>> streams;
  };
  // Nothing is taken in any more; all there is is the caller's.
  Rest close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    Rest rest{std::move(requests_), std::move(opening_)};
    for (auto& stream : ready_) rest.streams.push_back(std::move(stream));
    requests_.clear();
    opening_.clear();
    ready_.clear();
    return rest;
  }

 private:
  // REQUIRES: mutex_ is held
  std::shared_ptr<Stream> take_opening(const Stream* stream) {
    const auto found = std::find_if(opening_.begin(), opening_.end(),
                                    [&](const auto& other) { return other.get() == stream; });
    if (found == opening_.end()) return nullptr;
    auto taken = std::move(*found);
    opening_.erase(found);
    return taken;
  }

  std::mutex mutex_;
  size_t backlog_;
  bool closed_ = false;
  size_t reserved_ = 0;
  std::deque<Request> requests_;
  std::vector<std::shared_ptr<Stream>> opening_;
  std::deque<std::shared_ptr<Stream>> ready_;
};

}  // namespace verbena::rsockets
