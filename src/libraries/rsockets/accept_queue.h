// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "libraries/rsockets/listener_shares.h"

namespace verbena::rsockets {

// The queues of a listening rsocket: unanswered connection requests, half-open streams, and streams ready for
// accept().
//
// The backlog and the listener's share (ListenerShares) limit the ready streams. While either limit is
// reached, further requests stay in the queue of requests, without a queue pair, until a place becomes free
// or their senders give up. Half-open streams take no place in the backlog, as in TCP's SYN queue. If the
// half-open streams have reached the listener's share, a new half-open stream replaces the oldest.
//
// A request whose sender's hardware address the kernel does not know yet is set aside, without a place in the
// backlog, while the kernel looks for the address. Thread-safe.
template <class Request, class Stream>
class AcceptQueue {
 public:
  // REQUIRES: shares outlives the queue
  AcceptQueue(size_t backlog, ListenerShares& shares) : backlog_(backlog), shares_(shares) {
    shares_.add_listener();
  }
  ~AcceptQueue() { shares_.remove_listener(); }
  AcceptQueue(const AcceptQueue&) = delete;
  AcceptQueue& operator=(const AcceptQueue&) = delete;
  static constexpr size_t kMaxRequests = 1024;                      // unanswered requests; more are rejected
  static constexpr Duration kSearchTime = std::chrono::seconds(1);  // as ibv_modify_qp(3) waits
  // The pause before the first check whether the kernel knows a sender's hardware address; a host on the link
  // usually answers ARP sooner. Each further pause is twice as long as the previous one, so a request is
  // checked about ten times within kSearchTime.
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);

  void set_backlog(size_t backlog) {
    const std::lock_guard lock(mutex_);
    backlog_ = backlog;
  }

  // Queues a connection request. Returns false if kMaxRequests requests are queued or the listener is closed.
  // look_again() puts requests back even into a full queue. Even so, at most 2 * kMaxRequests requests are
  // queued or set aside.
  bool add_request(Request request) {
    const std::lock_guard lock(mutex_);
    if (closed_ || requests_.size() >= kMaxRequests) return false;
    requests_.push_back(std::move(request));
    return true;
  }
  // Removes and returns the first request for which `wanted` is true; nullopt if there is none. Called when
  // the sender of a request has given up.
  template <class Predicate>
  std::optional<Request> withdraw(Predicate wanted) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(requests_.begin(), requests_.end(), wanted);
    if (found != requests_.end()) {
      std::optional<Request> request(std::move(*found));
      requests_.erase(found);
      return request;
    }
    const auto aside = std::find_if(searches_.begin(), searches_.end(),
                                    [&](const auto& entry) { return wanted(entry.second.request); });
    if (aside == searches_.end()) return std::nullopt;
    return std::move(searches_.extract(aside).mapped().request);
  }
  // Takes the next request to answer, and reserves a place for it in the backlog. Returns nullopt if there is
  // no request, or the backlog or the listener's share is used up. The caller must then call opening(),
  // given_up() or set_aside() for the request, which releases the place.
  std::optional<Request> next_request() {
    const std::lock_guard lock(mutex_);
    if (!may_answer()) return std::nullopt;
    std::optional<Request> request(std::move(requests_.front()));
    requests_.pop_front();
    ++reserved_;
    return request;
  }
  // Releases the reserved place: no stream was created for the request.
  void given_up() {
    const std::lock_guard lock(mutex_);
    --reserved_;
  }

  // Releases the reserved place, and sets the request aside while the kernel looks for its sender's hardware
  // address. At most kMaxRequests requests are set aside: if there are as many already, removes the oldest of
  // them and returns it, for the caller to reject. Returns `request` itself if the listener is closed;
  // nullopt in all other cases.
  std::optional<Request> set_aside(Request request, TimePoint now) {
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (closed_) return request;
    std::optional<Request> oldest;
    if (searches_.size() >= kMaxRequests) {
      const auto found =
          std::ranges::min_element(searches_, {}, [](const auto& entry) { return entry.second.end; });
      oldest.emplace(std::move(searches_.extract(found).mapped().request));
    }
    searches_.emplace(now + kFirstPause, Search{std::move(request), now + kSearchTime, kFirstPause});
    return oldest;
  }
  // Checks one request that was set aside, if its pause is over: calls is_known(request), without a lock, to
  // learn whether the kernel knows the sender's hardware address now. If so, queues the request behind the
  // others; if not, starts the next pause. Returns the request, for the caller to reject it, if its sender
  // has not answered for kSearchTime or the listener is closed; otherwise nullopt.
  template <class Predicate>
  std::optional<Request> look_again(TimePoint now, Predicate is_known) {
    std::unique_lock lock(mutex_);
    if (searches_.empty() || searches_.begin()->first > now) return std::nullopt;
    auto node = searches_.extract(searches_.begin());
    Search& search = node.mapped();
    lock.unlock();
    const bool known = is_known(std::as_const(search.request));
    lock.lock();
    if (closed_ || (!known && now >= search.end)) return std::move(search.request);
    if (known) {
      requests_.push_back(std::move(search.request));
    } else {
      search.pause *= 2;
      node.key() = std::min(now + search.pause, search.end);
      searches_.insert(std::move(node));
    }
    return std::nullopt;
  }
  // Returns the time at which next_request() or look_again() has work: `now` if a request can be answered,
  // otherwise the end of the next pause of a request set aside. Returns kNever if neither has work.
  TimePoint next_turn(TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (may_answer()) return now;
    return searches_.empty() ? kNever : std::max(now, searches_.begin()->first);
  }
  // Releases the reserved place, and queues a half-open stream. Returns the streams to refuse: the oldest
  // half-open streams if the listener's share is used up, or `stream` itself if the listener was closed
  // meanwhile. There can be several, if the share has become smaller.
  std::vector<std::shared_ptr<Stream>> opening(std::shared_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (closed_) return {std::move(stream)};
    std::vector<std::shared_ptr<Stream>> oldest;
    while (!opening_.empty() && is_share_used()) oldest.push_back(take_opening(opening_.front().get()));
    opening_.push_back(std::move(stream));
    return oldest;
  }

  // Makes a half-open stream ready for accept(), even beyond the backlog. Called when the stream's connection
  // is established. Returns false if the stream is not half-open.
  bool opened(const Stream* stream) {
    const std::lock_guard lock(mutex_);
    auto taken = take_opening(stream);
    if (!taken) return false;
    ready_.push_back(std::move(taken));
    return true;
  }
  // Removes and returns a stream whose connection could not be established; null if the stream is not
  // half-open.
  std::shared_ptr<Stream> failed(const Stream* stream) {
    const std::lock_guard lock(mutex_);
    return take_opening(stream);
  }

  bool has_ready() {
    const std::lock_guard lock(mutex_);
    return !ready_.empty();
  }
  // Removes and returns the stream that has been ready for the longest time; null if no stream is ready.
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
  // Closes the queues, so that nothing can be added any more. Returns the requests and streams that were in
  // the queues, for the caller to reject or destroy.
  Rest close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    Rest rest{std::move(requests_), std::move(opening_)};
    for (auto& [next, search] : searches_) rest.requests.push_back(std::move(search.request));
    for (auto& stream : ready_) rest.streams.push_back(std::move(stream));
    requests_.clear();
    searches_.clear();
    opening_.clear();
    ready_.clear();
    return rest;
  }

 private:
  struct Search {
    Request request;
    TimePoint end;   // of the search
    Duration pause;  // before the next look
  };

  // REQUIRES for all: mutex_ is held
  bool may_answer() const {
    return !requests_.empty() && reserved_ + ready_.size() < std::min(backlog_, shares_.streams());
  }
  bool is_share_used() const {
    return opening_.size() >= shares_.half_open() || opening_.size() + ready_.size() >= shares_.streams();
  }
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
  ListenerShares& shares_;
  bool closed_ = false;
  size_t reserved_ = 0;
  std::deque<Request> requests_;
  std::multimap<TimePoint, Search> searches_;     // by the time of the next look
  std::vector<std::shared_ptr<Stream>> opening_;  // the half-open streams, oldest first
  std::deque<std::shared_ptr<Stream>> ready_;
};

}  // namespace verbena::rsockets
