// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/stopped_processes.h"

#include <system_error>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "control/protocol/status_page.h"
#include "wire/roce/aeth.h"

namespace verbena::agent {

namespace {

// If a packet stays in the socket for this long, the process is looked at. Peers with common timeouts give up
// after half a second.
constexpr Duration kPatience = std::chrono::milliseconds(60);
// Interval for reading the state of a stopped process.
constexpr Duration kStateInterval = std::chrono::milliseconds(100);
// Interval between acknowledgements to a waiting peer: shorter than the common timeout (14: 67 ms). They end
// kReminderTime after the peer's latest request: a forged packet in the peer's name must not make this host
// send to it forever.
constexpr Duration kReminderInterval = std::chrono::milliseconds(25);
constexpr Duration kReminderTime = std::chrono::seconds(5);
constexpr size_t kRemindersAtOnce = 256;
// If a peer repeats its request this long after the first acknowledgement, acknowledgements do not keep it
// waiting.
constexpr Duration kRemindersWork = std::chrono::milliseconds(100);
// Minimum interval between two readings of a socket, and maximum number of datagrams per reading.
constexpr Duration kReadInterval = std::chrono::milliseconds(2);
constexpr int kDatagramsPerReading = 64;
constexpr size_t kMaxDatagramBytes = 65536;
constexpr size_t kMaxRequestsPerReading = 256;
// Maximum number of requests that wait to be answered, also of hosts that are not the QP's peer.
constexpr size_t kMaxRequests = 1024;
// Addresses that are remembered for a QP whose peer is not known.
constexpr int kMaxSources = 4;
// rnr_retry 7 means infinite (IBTA volume 1, 9.7.5.2.8).
constexpr uint8_t kInfiniteRnrRetry = 7;

bool has_packets(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCINQ, &bytes) == 0 && bytes > 0;
}

bool is_half_full(int socket) {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof memory;
  if (::getsockopt(socket, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0) return false;
  return memory[SK_MEMINFO_RMEM_ALLOC] > memory[SK_MEMINFO_RCVBUF] / 2;
}

bool set_peek_offset(int socket, int offset) {
  return ::setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset) == 0;
}

template <class Entry>
bool read_entry(int page, size_t array, uint32_t index, Entry& entry) {
  const auto offset = static_cast<off_t>(array + index * sizeof(Entry));
  return ::pread(page, static_cast<void*>(&entry), sizeof entry, offset) == ssize_t{sizeof entry};
}

// Short enough for a queue pair with the usual timeouts, which gives up after 0.5 s.
constexpr Duration kInterval = std::chrono::milliseconds(100);

}  // namespace

// Watches one slot. It first waits for a packet, then checks whether the process is stopped, and answers
// while it is.
class StoppedProcesses::Slot final : private net::PacketHandler {
 public:
  Slot(StoppedProcesses& of, const LeasedSlot& leased)
      : of_(of),
        loop_(of.loop_),
        index_(leased.index),
        socket_(leased.socket),
        page_(leased.page),
        pid_(leased.lessee.pid),
        uid_(leased.lessee.uid),
        lease_(leased.lease),
        splitter_(of.port_, leased.index, counters_),
        reading_(loop_, uid_, [this] { read(); }),
        reminder_(loop_, uid_, [this] { remind(); }) {
    watch();
  }
  ~Slot() override {
    if (is_watching_) loop_.forget(socket_);
    of_.leave(*this);
    if (answers_) set_peek_offset(socket_, -1);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  bool is_of(const LeasedSlot& leased) const {
    return leased.lease == lease_ && leased.socket == socket_ && leased.lessee.pid == pid_;
  }
  ProcessName process() const { return {uid_, pid_}; }
  bool has_unread() const { return has_packets(socket_); }
  int page() const { return page_; }

  // Waits for the next packet. To end the watch may take as long as the user likes, who has the socket
  // (epoll(7)).
  void watch() {
    loop_.watch_for(uid_, socket_, EPOLLIN, [this](uint32_t) {
      forget();
      of_.ask_soon(*this);
      return false;
    });
    is_watching_ = true;
  }
  // The process is stopped.
  void begin() {
    const ActingFor user(uid_);
    if (!set_peek_offset(socket_, 0)) {
      log_debug("slot {}: no SO_PEEK_OFF (errno {}): nobody answers for pid {}", index_, errno, pid_);
      return watch();
    }
    log_info("pid {} is stopped: its peers are asked to wait", pid_);
    // Edge-triggered: what is only peeked at stays there.
    loop_.watch_for(uid_, socket_, EPOLLIN, [this](uint32_t) {
      read_soon();
      return false;
    });
    answers_ = true;
    ++stops_;
    is_watching_ = true;
    of_.answers(*this);
    read();
  }
  // It goes on.
  void end() {
    const ActingFor user(uid_);
    log_info("pid {} goes on", pid_);
    answers_ = false;
    set_peek_offset(socket_, -1);
    forget();
    reading_.cancel();
    reminder_.cancel();
    waiting_.clear();
    requests_.clear();
    known_.clear();
    wanted_.clear();
    is_reading_page_ = false;
    watch();
  }

 private:
  // A request's QPN, and the address that it comes from.
  using Key = std::pair<uint32_t, std::array<uint8_t, 16>>;
  // The oldest request of a sender to a QP that is not answered yet.
  struct Request {
    roce::Psn psn;
    roce::Path path;
  };
  struct Waiting {
    Request request;
    roce::Psn first;  // oldest PSN of the first reading
    TimePoint since;
    TimePoint until;  // acknowledgements are repeated until then
    bool came_again = false;
  };
  // A QP that receives requests, as its process shows it. The process is not trusted: wrong values can only
  // harm its own QPs.
  struct ShownQp {
    uint32_t remote_qpn;
    protocol::ResponderProgress progress;
    std::optional<roce::Address> peer;  // nullopt: the process does not say
  };

  static std::optional<roce::Address> read_peer(int page, roce::Qpn qpn) {
    protocol::QpPeer shown;
    if (!read_entry(page, offsetof(protocol::StatusPage, peers), qpn.index(), shown)) return std::nullopt;
    const auto peer =
        std::bit_cast<roce::Address>(std::array<uint64_t, 2>{shown.gid[0].load(), shown.gid[1].load()});
    return peer.is_zero() ? std::nullopt : std::optional(peer);
  }

  // Returns nullopt if the QP does not answer, or its progress is not known exactly.
  static std::optional<ShownQp> read_qp(int page, roce::Qpn qpn) {
    protocol::QpStatus status;
    protocol::QpDetails details;
    if (!read_entry(page, offsetof(protocol::StatusPage, qps), qpn.index(), status) ||
        !read_entry(page, offsetof(protocol::StatusPage, details), qpn.index(), details) ||
        status.in_use == 0 || status.qpn != qpn.value()) {
      return std::nullopt;
    }
    const uint64_t state = status.state;
    const bool receives = state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
    if (status.type != IBV_QPT_RC || !receives) return std::nullopt;
    const auto progress = protocol::decode_responder_progress(details.numbers[protocol::kQpReceivePsn]);
    if (!progress.is_exact) return std::nullopt;
    return ShownQp{static_cast<uint32_t>(status.remote_qpn) & 0xffffff, progress, read_peer(page, qpn)};
  }
  // A QP's entry in the page, when it was last read.
  struct Known {
    std::optional<ShownQp> qp;
    TimePoint at;
  };
  // The fields of an answer to a request.
  struct Answer {
    roce::Headers headers;  // of an acknowledgement: the peer's QPN, and the PSN and MSN of a NAK
    roce::Path path;
    bool rnr_without_end;
    bool is_for_peer;  // by the status page, and not for just anybody
  };

  void forget() {
    if (std::exchange(is_watching_, false)) loop_.forget(socket_);
  }

  void read_soon() { reading_.arm(std::max(MonotonicClock::now(), last_reading_ + kReadInterval)); }

  void read() {
    last_reading_ = MonotonicClock::now();
    int left = kDatagramsPerReading;
    while (left > 0 && receive(MSG_PEEK)) --left;
    for (int taken = 0; taken < kDatagramsPerReading && is_half_full(socket_); ++taken) {
      if (!receive(0)) break;
    }
    answer_all();
    if (left == 0) read_soon();
  }

  // Answers the requests to QPs whose entries are known, and has the others read.
  void answer_all() {
    size_t left = kMaxRequestsPerReading;
    for (auto next = requests_.begin(); next != requests_.end();) {
      const auto& [key, request] = *next;
      want(key.first);
      if (!known_.contains(key.first)) {
        ++next;
        continue;
      }
      if (left > 0 && answer(key, request)) --left;
      next = requests_.erase(next);
    }
    if (left < kMaxRequestsPerReading) of_.sender_.flush();
    read_page();
    remind_later();
  }

  // Has the QP's entry read if it was not, or long ago.
  void want(uint32_t qpn) {
    const auto known = known_.find(qpn);
    if (known == known_.end() || MonotonicClock::now() - known->second.at >= kStateInterval) {
      wanted_.insert(qpn);
    }
  }

  void read_page() {
    if (is_reading_page_ || wanted_.empty()) return;
    const auto entries = std::make_shared<std::map<uint32_t, std::optional<ShownQp>>>();
    for (const uint32_t qpn : wanted_) entries->try_emplace(qpn);
    const auto read = [entries](int page) {
      for (auto& [qpn, shown] : *entries) shown = read_qp(page, roce::Qpn(qpn));
    };
    const auto take = [entries, &of = of_, index = index_, lease = lease_, stop = stops_] {
      const auto found = of.slots_.find(index);
      if (found == of.slots_.end()) return;
      Slot& slot = *found->second;
      if (slot.lease_ != lease || slot.stops_ != stop || !slot.answers_) return;
      slot.is_reading_page_ = false;
      if (slot.known_.size() > kMaxRequests) slot.known_.clear();  // those that are needed are read again
      for (const auto& [qpn, shown] : *entries) slot.known_[qpn] = {shown, MonotonicClock::now()};
      slot.answer_all();
    };
    if (!of_.closer_.work_with(uid_, page_, read, take)) return;  // the next packet tries again
    is_reading_page_ = true;
    wanted_.clear();
  }

  void remind_later() {
    if (!waiting_.empty()) reminder_.arm(MonotonicClock::now() + kReminderInterval);
  }

  // Repeats the acknowledgement to a limited number of peers per call, in turn.
  void remind() {
    const TimePoint now = MonotonicClock::now();
    const size_t count = std::min(waiting_.size(), kRemindersAtOnce);
    for (size_t i = 0; i < count; ++i) {
      auto next = waiting_.upper_bound(last_reminded_);
      if (next == waiting_.end()) next = waiting_.begin();
      last_reminded_ = next->first;
      want(next->first.first);
      const auto answer = answer_to(roce::Qpn(next->first.first), next->second.request);
      if (answer && (answer->is_for_peer || next->second.came_again)) acknowledge_again(*answer);
      if (!answer || now >= next->second.until) waiting_.erase(next);
    }
    of_.sender_.flush();
    read_page();
    remind_later();
  }

  // Receives one datagram. False if there is none, or with MSG_PEEK no unseen one.
  bool receive(int flags) {
    net::SocketAddress name{};
    alignas(cmsghdr) std::array<std::byte, net::kControlBytes> control;
    iovec data{of_.buffer_.get(), kMaxDatagramBytes};
    msghdr message{};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(socket_, &message, flags | MSG_DONTWAIT);
    if (bytes < 0) return false;
    if (bytes > 0) {
      splitter_.split(*this, net::origin_of(message), {of_.buffer_.get(), static_cast<size_t>(bytes)});
    }
    return true;
  }

  void on_packet(const transport::IncomingPacket& incoming) override {
    const roce::Headers& headers = incoming.packet.headers;
    if (headers.service() != roce::Service::kRc || !headers.info().is_request) return;
    if (headers.destination.slot() != index_) return;
    const Key key{headers.destination.value(), incoming.path.source.bytes};
    const auto found = requests_.find(key);
    if (found == requests_.end()) {
      if (requests_.size() < kMaxRequests) requests_.emplace(key, Request{headers.psn, incoming.path});
    } else if (headers.psn.is_before(found->second.psn)) {
      found->second.psn = headers.psn;
    }
  }

  // Returns the answer to a request. Nothing if the QP does not answer, or the request is not of its peer.
  std::optional<Answer> answer_to(roce::Qpn qpn, const Request& request) const {
    const auto known = known_.find(qpn.value());
    if (known == known_.end() || !known->second.qp) return std::nullopt;
    const auto& [remote_qpn, progress, peer] = *known->second.qp;
    if (peer && *peer != request.path.source) return std::nullopt;
    const roce::Psn expected(progress.expected);
    Answer answer{
        .headers = {}, .path = request.path, .rnr_without_end = false, .is_for_peer = peer.has_value()};
    answer.headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);
    answer.headers.destination = roce::Qpn(remote_qpn);
    answer.headers.psn = request.psn.is_before(expected) ? request.psn : expected;
    answer.headers.msn = progress.msn;
    std::swap(answer.path.source, answer.path.destination);
    answer.path.hop_limit = roce::Path{}.hop_limit;
    answer.rnr_without_end = progress.rnr_retry == kInfiniteRnrRetry;
    return answer;
  }

  // Returns false if the request gets no answer.
  bool answer(const Key& key, const Request& request) {
    const auto answer = answer_to(roce::Qpn(key.first), request);
    if (!answer) return false;
    const TimePoint now = last_reading_;
    if (!waiting_.contains(key)) make_room_for(key.first);
    const auto [place, is_new] = waiting_.try_emplace(key, Waiting{request, request.psn, now, {}});
    Waiting& waiting = place->second;
    waiting.came_again |= !is_new;
    waiting.request = request;
    waiting.until = now + kReminderTime;
    roce::Headers word = answer->headers;
    word.opcode = roce::kStoppedOpcode;
    word.msn = 0;
    of_.sender_.send_headers(word, answer->path);
    const bool came_again = !request.psn.is_after(waiting.first) && now - waiting.since >= kRemindersWork;
    if (!came_again || !answer->rnr_without_end) {
      acknowledge_again(*answer);
      return true;
    }
    roce::Headers nak = answer->headers;
    nak.syndrome = roce::rnr_syndrome(roce::kStoppedTimer);
    of_.sender_.send_headers(nak, answer->path);
    return true;
  }

  // Forgets an address of a QP whose peer is not known, if there are many: the one that was heard longest
  // ago, and rather one whose request has not come again.
  void make_room_for(uint32_t qpn) {
    const auto [begin, end] = std::pair{waiting_.lower_bound({qpn, {}}), waiting_.lower_bound({qpn + 1, {}})};
    if (std::distance(begin, end) < kMaxSources) return;
    waiting_.erase(std::min_element(begin, end, [](const auto& one, const auto& other) {
      return std::pair(one.second.came_again, one.second.until) <
             std::pair(other.second.came_again, other.second.until);
    }));
  }

  // Repeats the acknowledgement of all packets before the request. The peer has had it already unless it was
  // lost.
  void acknowledge_again(const Answer& answer) {
    roce::Headers headers = answer.headers;
    headers.psn = headers.psn - 1;
    headers.syndrome = roce::ack_syndrome();
    of_.sender_.send_headers(headers, answer.path);
  }

  StoppedProcesses& of_;
  EventLoop& loop_;
  const uint32_t index_;
  const int socket_;
  const int page_;
  const pid_t pid_;
  const uid_t uid_;
  const uint64_t lease_;
  net::PortCounters counters_{};  // discarded: the process counts the packets when it reads them
  net::DatagramSplitter splitter_;
  bool is_watching_ = false;
  bool answers_ = false;
  DeadlineTimer reading_;
  TimePoint last_reading_{};
  uint64_t stops_ = 0;  // number of calls of begin()
  std::map<Key, Request> requests_;
  std::map<uint32_t, Known> known_;  // by QPN
  std::set<uint32_t> wanted_;        // QPNs whose entries read_page() has read next
  bool is_reading_page_ = false;
  DeadlineTimer reminder_;
  std::map<Key, Waiting> waiting_;  // those that have been answered
  Key last_reminded_{};
};

StoppedProcesses::StoppedProcesses(EventLoop& loop, ForeignCloser& closer, uint16_t port,
                                   HeaderSender& sender, IsStopped is_stopped)
    : loop_(loop),
      closer_(closer),
      port_(port),
      sender_(sender),
      is_stopped_(std::move(is_stopped)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kMaxDatagramBytes)) {}

StoppedProcesses::~StoppedProcesses() = default;

StoppedProcesses::Process& StoppedProcesses::process_of(const Slot& slot) {
  return processes_.try_emplace(slot.process(), *this, slot.process()).first->second;
}

// The first of a process's slots that asks sets the time for those that ask meanwhile.
void StoppedProcesses::ask_soon(Slot& slot) {
  Process& process = process_of(slot);
  process.curious.insert(&slot);
  process.look.arm(MonotonicClock::now() + kPatience);
}

void StoppedProcesses::look(ProcessName name) {
  Process& process = processes_.at(name);
  const auto has_unread = [](const Slot* slot) { return slot->has_unread(); };
  if (std::ranges::any_of(process.curious, has_unread)) {
    if (!read_state(name, **process.curious.begin())) process.look.arm(MonotonicClock::now() + kPatience);
    return;
  }
  for (Slot* slot : std::exchange(process.curious, {})) slot->watch();
  forget_if_done(name);
}

void StoppedProcesses::answers(Slot& slot) {
  Process& process = process_of(slot);
  process.answering.insert(&slot);
  process.check.arm(MonotonicClock::now() + kStateInterval);
}

void StoppedProcesses::check(ProcessName name) {
  Process& process = processes_.at(name);
  if (process.answering.empty()) return;
  if (!read_state(name, **process.answering.begin()))
    process.check.arm(MonotonicClock::now() + kStateInterval);
}

bool StoppedProcesses::read_state(ProcessName name, const Slot& slot) {
  Process& process = processes_.at(name);
  if (process.state) return true;
  const auto state = std::make_shared<bool>(false);
  const auto read = [state, is_stopped = is_stopped_, pid = name.pid](int) { *state = is_stopped(pid); };
  const auto take = [this, name, state] {
    const auto found = processes_.find(name);
    if (found != processes_.end() && found->second.state == state) take_state(name, *state);
  };
  if (!closer_.work_with(name.user, slot.page(), read, take)) return false;
  process.state = state;
  return true;
}

void StoppedProcesses::take_state(ProcessName name, bool is_stopped) {
  Process& process = processes_.at(name);
  process.state = nullptr;
  if (!is_stopped) {
    for (Slot* slot : std::exchange(process.answering, {})) slot->end();
  } else if (!process.answering.empty()) {
    process.check.arm(MonotonicClock::now() + kStateInterval);
  }
  for (Slot* slot : std::exchange(process.curious, {})) {
    is_stopped && slot->has_unread() ? slot->begin() : slot->watch();
  }
  forget_if_done(name);
}

void StoppedProcesses::leave(Slot& slot) {
  const auto found = processes_.find(slot.process());
  if (found == processes_.end()) return;
  found->second.curious.erase(&slot);
  found->second.answering.erase(&slot);
  forget_if_done(slot.process());
}

void StoppedProcesses::forget_if_done(ProcessName name) {
  const auto found = processes_.find(name);
  if (found == processes_.end()) return;
  const Process& process = found->second;
  if (process.curious.empty() && process.answering.empty()) processes_.erase(found);
}

void StoppedProcesses::slot_changed(uint32_t slot, const std::optional<LeasedSlot>& leased) {
  const auto found = slots_.find(slot);
  const bool is_watched = leased && leased->index == slot && leased->socket >= 0 && leased->lessee.pid > 0;
  if (is_watched && found != slots_.end() && found->second->is_of(*leased)) return;
  if (found != slots_.end()) slots_.erase(found);
  if (is_watched) slots_.emplace(slot, std::make_unique<Slot>(*this, *leased));
}

StoppedAgent::StoppedAgent() : thread_([this] { run(); }) {}

StoppedAgent::~StoppedAgent() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StoppedAgent::watch(pid_t agent, UniqueFd takeover_state) {
  const std::lock_guard lock(mutex_);
  agent_ = agent;
  takeover_state_ = std::move(takeover_state);
}

void StoppedAgent::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return ended_; })) consider();
  end();
}

void StoppedAgent::consider() {
  const bool stopped = is_stopped(agent_);
  if (stopped && !forwarder_) begin();
  if (!stopped && forwarder_) end();
}

void StoppedAgent::begin() try {
  log_info("the agent (pid {}) is stopped: packets are forwarded in its place", agent_);
  contents_ = TakeoverState::look(takeover_state_.get());
  forwarder_.emplace();
  for (const SlotRecord& slot : contents_.slots) {
    if (!slot.leased || slot.socket < 0 || slot.forwarder_end < 0) continue;
    UniqueFd end(::fcntl(slot.forwarder_end, F_DUPFD_CLOEXEC, 3));
    const auto goes_on = forwarder_->go_on(slot.index, slot.uid, slot.socket, std::move(end));
    if (!goes_on) log_warning("slot {} gets no packets: errno {}", slot.index, goes_on.error().code);
  }
} catch (const std::system_error& error) {
  log_warning("the agent is stopped, and no packets are forwarded: errno {}", error.code().value());
}

void StoppedAgent::end() {
  forwarder_.reset();
  contents_ = {};
}

}  // namespace verbena::agent
