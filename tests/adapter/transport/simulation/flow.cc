// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/flow.h"

#include <algorithm>
#include <utility>

#include "adapter/memory/region.h"
#include "adapter/memory/window.h"
#include "adapter/queues/work_queue.h"
#include "base/format.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kLeastSpace = 128 * 1024;
constexpr uint32_t kMaxUnsignaled = 32 * 1024;
constexpr uint32_t kMaxGaps = queues::kMaxSge * 40;
// A key of no region, for requests with a key fault.
constexpr uint32_t kNoKey = 0x13;

uint32_t span_of(const FlowOptions& options) {
  return options.max_message + kMaxGaps;
}
uint32_t space_of(const FlowOptions& options) {
  return 2 * span_of(options) + kLeastSpace;
}

}  // namespace

Flow::Flow(Host& sender, SimulatedQp& from, Host& receiver, SimulatedQp& to, Buffer& shared_counter,
           const FlowOptions& options, uint64_t seed)
    : sender_(sender),
      from_(from),
      receiver_(receiver),
      to_(to),
      shared_counter_(shared_counter),
      options_(options),
      random_(seed),
      mood_(~seed),
      source_(sender.memory().add(2 * span_of(options), IBV_ACCESS_MW_BIND)),
      landing_(sender.memory().add(space_of(options), IBV_ACCESS_LOCAL_WRITE)),
      library_(receiver.memory().add(2 * span_of(options), IBV_ACCESS_REMOTE_READ)),
      target_(receiver.memory().add(space_of(options), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                           IBV_ACCESS_MW_BIND | memory::kFlushGlobal)),
      inbox_(receiver.memory().add(space_of(options), IBV_ACCESS_LOCAL_WRITE)),
      counter_(receiver.memory().add(8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)),
      window_(receiver.memory().add_window(memory::RegionKind::kWindow2)),
      own_window_(sender.memory().add_window(memory::RegionKind::kWindow2)),
      landing_space_(space_of(options)),
      target_space_(space_of(options)),
      inbox_space_(space_of(options)) {
  own_tag_ = static_cast<uint8_t>(own_window_.key);
  open_window();
  source_.fill(seed + 1);
  library_.fill(seed + 2);
}

// ---- drawing messages

uint32_t Flow::draw_length() {
  const uint32_t most = options_.max_message;
  switch (random_.below(8)) {
    case 0:
      return 0;
    case 1:
    case 2:
      return static_cast<uint32_t>(random_.below(std::min(most, 64u) + 1));
    case 3: {  // near a whole number of packets
      const uint64_t whole = options_.mtu * random_.below(most / options_.mtu + 1);
      return static_cast<uint32_t>(std::min<uint64_t>(most, whole + random_.below(2)));
    }
    case 4:
    case 5:
    case 6:
      return static_cast<uint32_t>(random_.below(std::min(most, 4 * options_.mtu) + 1));
    default:
      return static_cast<uint32_t>(random_.below(most + 1));
  }
}

ibv_wr_opcode Flow::draw_opcode() {
  static constexpr ibv_wr_opcode kAll[] = {IBV_WR_SEND,
                                           IBV_WR_SEND,
                                           IBV_WR_SEND_WITH_IMM,
                                           IBV_WR_RDMA_WRITE,
                                           IBV_WR_RDMA_WRITE,
                                           IBV_WR_RDMA_WRITE_WITH_IMM,
                                           IBV_WR_RDMA_READ,
                                           IBV_WR_RDMA_READ,
                                           IBV_WR_ATOMIC_FETCH_AND_ADD,
                                           IBV_WR_ATOMIC_CMP_AND_SWP,
                                           IBV_WR_ATOMIC_WRITE,
                                           kFlush,
                                           IBV_WR_SEND_WITH_INV,
                                           IBV_WR_BIND_MW};
  if (options_.only_writes) return IBV_WR_RDMA_WRITE;
  const ibv_wr_opcode drawn = kAll[random_.below(std::size(kAll))];
  if (drawn == IBV_WR_BIND_MW) return local_requests_++ % 2 == 0 ? IBV_WR_BIND_MW : IBV_WR_LOCAL_INV;
  // The next SEND WITH INVALIDATE waits until the previous one has completed: only then is the window bound
  // again.
  if (drawn == IBV_WR_SEND_WITH_INV && !std::exchange(window_may_close_, false)) return IBV_WR_SEND;
  return drawn;
}

void Flow::draw_message() {
  Message& m = messages_.emplace_back();
  m.id = first_ + messages_.size() - 1;
  m.opcode = draw_opcode();
  uint32_t length = options_.only_writes ? options_.max_message : draw_length();
  if (is_faulty(m)) {
    static constexpr ibv_wr_opcode kOneSided[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    const bool two_sided = options_.fault == Fault::kTooLong || options_.fault == Fault::kNoReceive;
    m.opcode = two_sided ? IBV_WR_SEND : kOneSided[random_.below(2)];
    length = std::max(length, 1u);
  }
  if (m.is_atomic() || m.is_word()) length = 8;
  if (m.is_flush() || m.is_local()) length = 0;
  m.layout = Layout::draw(random_, length);
  m.immediate = static_cast<uint32_t>(random_.next());
  m.source_offset = static_cast<uint32_t>(random_.below(span_of(options_)));
  if (m.is_atomic() || m.is_word()) m.layout = Layout{8, 1, 0};

  const uint64_t bits = random_.next();
  const bool data = !m.is_atomic() && !m.is_flush() && !m.is_local() && m.opcode != IBV_WR_RDMA_READ;
  if (data && length <= queues::kMaxInline && (bits & 3) == 0 && !is_faulty(m)) m.flags |= IBV_SEND_INLINE;
  if ((bits & 0x1c) == 0) m.flags |= IBV_SEND_FENCE;
  if ((bits & 0x60) == 0) m.flags |= IBV_SEND_SOLICITED;
  packets_drawn_ += std::max<uint32_t>(1, (length + options_.mtu - 1) / options_.mtu);
  all_drawn_ =
      packets_drawn_ >= options_.packets && (options_.fault == Fault::kNone || m.id > options_.fault_at);
  unsignaled_bytes_ += m.layout.span() + 64;
  if (options_.all_signaled || (bits & 0x180) != 0 || all_drawn_ || unsignaled_bytes_ > kMaxUnsignaled) {
    m.flags |= IBV_SEND_SIGNALED;
    unsignaled_bytes_ = 0;
  }
  if (m.takes_receive()) m.receive = receives_drawn_++;
}

// ---- posting

TimePoint Flow::idle(TimePoint now) {
  if (options_.lateness == 0 || mood_.below(1'000'000) >= options_.lateness) return kNever;
  return now + Duration(mood_.below(mood_.one_in(20) ? 5'000'000 : 50'000));
}

bool Flow::post_sends(TimePoint now) {
  if (failed()) return false;
  if (send_idle_until_ != kNever) {
    if (now < send_idle_until_) return false;
    send_idle_until_ = kNever;
  }
  for (uint64_t burst = 1 + mood_.below(16); burst > 0; --burst) {
    if (next_post_ == first_ + messages_.size()) {
      if (all_drawn_) return false;
      draw_message();
    }
    if (!post_next()) return false;
  }
  send_idle_until_ = idle(now);
  return send_idle_until_ == kNever;
}

void Flow::open_window() {
  const bool opened = memory::bind_window(receiver_.memory().keys(),
                                          {.window_key = window_.key,
                                           .new_key = window_.key + 1,
                                           .region_key = target_.key(),
                                           .address = target_.address(),
                                           .length = target_.size(),
                                           .access = IBV_ACCESS_REMOTE_WRITE,
                                           .pd = kTestPd,
                                           .qpn = to_.qp->config().qpn.value()},
                                          to_.qp->bound_windows());
  if (!opened) complain("a window that a message has closed could not be opened again");
  window_is_open_ = window_may_close_ = true;
}

void Flow::describe_local(Message& m, ibv_send_wr& wr) {
  if (m.opcode == IBV_WR_LOCAL_INV) {
    wr.invalidate_rkey = (own_window_.key & ~0xffu) | own_tag_;
    return;
  }
  mw_.rkey = own_window_.key;
  mr_.lkey = source_.key();
  wr.bind_mw = {&mw_, ++own_tag_, {&mr_, source_.address(), source_.size(), IBV_ACCESS_REMOTE_READ}};
}

// Finds memory for a message and fills in its work request. False if there is no room now.
bool Flow::place(Message& m, ibv_send_wr& wr) {
  if (m.is_local()) {
    describe_local(m, wr);
  } else if (m.invalidates()) {
    wr.invalidate_rkey = m.immediate = window_.key;
    window_is_open_ = false;
  } else if (m.is_write()) {
    const auto stretch = target_space_.take(m.length());
    if (!stretch) return false;
    m.place = *stretch;
    std::memset(target_.data() + m.place.offset, static_cast<int>(Layout::kPoison), m.length());
    wr.wr.rdma.remote_addr = target_.address(m.place.offset);
    wr.wr.rdma.rkey = window_is_open_ && mood_.one_in(3) ? window_.key : target_.key();
  } else if (m.opcode == IBV_WR_RDMA_READ) {
    const auto stretch = landing_space_.take(m.layout.span());
    if (!stretch) return false;
    m.place = *stretch;
    m.layout.poison(landing_.data() + m.place.offset);
    wr.wr.rdma.remote_addr = library_.address(m.source_offset);
    wr.wr.rdma.rkey = library_.key();
  } else if (m.is_word()) {
    const auto stretch = target_space_.take(8);  // aligned to eight bytes
    if (!stretch) return false;
    m.place = *stretch;
    std::memset(target_.data() + m.place.offset, static_cast<int>(Layout::kPoison), 8);
    wr.wr.rdma.remote_addr = target_.address(m.place.offset);
    wr.wr.rdma.rkey = target_.key();
  } else if (m.is_flush()) {
    const bool whole = mood_.one_in(2);
    wr.wr.atomic.remote_addr = whole ? 0 : target_.address();
    wr.wr.atomic.rkey = target_.key();
    wr.wr.atomic.compare_add = whole ? 0 : target_.size();
    wr.wr.atomic.swap =
        uint64_t{whole ? memory::kSelectRegion : memory::kSelectRange} << 8 | memory::kPlacementGlobal;
  } else if (m.is_atomic()) {
    const auto stretch = landing_space_.take(8);
    if (!stretch) return false;
    m.place = *stretch;
    wr.wr.atomic.remote_addr = counter_.address();
    wr.wr.atomic.rkey = counter_.key();
    m.original = counter_value_;
    const uint64_t operand = mood_.next();
    if (m.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      const bool hit = mood_.one_in(2);
      wr.wr.atomic.compare_add = hit ? counter_value_ : operand;
      wr.wr.atomic.swap = mood_.next();
      if (wr.wr.atomic.compare_add == counter_value_) counter_value_ = wr.wr.atomic.swap;
    } else if (mood_.one_in(2)) {
      wr.wr.atomic.compare_add = operand;
      counter_value_ += operand;
    } else {
      m.shared = true;
      wr.wr.atomic.remote_addr = shared_counter_.address();
      wr.wr.atomic.rkey = shared_counter_.key();
      wr.wr.atomic.compare_add = operand;
      added_ += operand;
    }
  }
  return true;
}

void Flow::make_faulty(Message& m, ibv_send_wr& wr, ibv_sge* list) {
  switch (options_.fault) {
    case Fault::kRemoteKey:
      wr.wr.rdma.rkey = kNoKey;
      break;
    case Fault::kRemoteBounds:
      wr.wr.rdma.remote_addr = m.is_write() ? target_.address(target_.size() - m.length() + 1)
                                            : library_.address(library_.size() - m.length() + 1);
      break;
    case Fault::kLocalKey:
      list[m.layout.pieces - 1].lkey = kNoKey;
      break;
    default:
      break;
  }
}

bool Flow::post_next() {
  Message& m = message(next_post_);
  ibv_send_wr wr{};
  wr.wr_id = m.id;
  wr.opcode = m.opcode;
  wr.send_flags = m.flags;
  wr.imm_data = htobe32(m.immediate);
  queues::SendQueue& queue = from_.qp->send_queue();
  if (queue.posted() - queue.consumed() >= queue.capacity() || !place(m, wr)) return false;
  ibv_sge list[queues::kMaxSge];
  const bool lands = m.opcode == IBV_WR_RDMA_READ || m.is_atomic();
  wr.num_sge = static_cast<int>(lands ? m.layout.fill(landing_, m.place.offset, list)
                                      : m.layout.fill(source_, m.source_offset, list));
  if (m.is_flush() || m.is_local()) wr.num_sge = 0;
  wr.sg_list = list;
  if (is_faulty(m)) make_faulty(m, wr, list);
  post_send(*from_.qp, wr);
  m.posted = true;
  ++next_post_;
  return true;
}

bool Flow::post_receive_for(Message& m) {
  if (is_faulty(m) && options_.fault == Fault::kNoReceive) return false;
  Receive r;
  r.message = m.id;
  // A WRITE with immediate data consumes a receive but uses none of its memory.
  uint32_t length = m.is_write() ? 0 : m.length();
  if (is_faulty(m) && options_.fault == Fault::kTooLong) {
    length -= static_cast<uint32_t>(1 + mood_.below(length));
  } else if (mood_.one_in(3)) {
    length += static_cast<uint32_t>(mood_.below(100));
  }
  r.layout = Layout::draw(mood_, length);
  const queues::RecvQueue& queue = to_.qp->recv_queue();
  if (queue.posted() - queue.consumed() >= queue.capacity()) return false;
  const auto stretch = inbox_space_.take(r.layout.span());
  if (!stretch) return false;
  r.place = *stretch;
  r.layout.poison(inbox_.data() + r.place.offset);
  ibv_sge list[queues::kMaxSge];
  ibv_recv_wr wr{};
  wr.wr_id = receives_posted_;
  wr.num_sge = static_cast<int>(r.layout.fill(inbox_, r.place.offset, list));
  wr.sg_list = list;
  post_recv(*to_.qp, wr);
  receives_.push_back(r);
  ++receives_posted_;
  return true;
}

bool Flow::post_receives(TimePoint now) {
  if (failed() || receive_status_ != IBV_WC_SUCCESS) return false;
  if (receive_idle_until_ != kNever) {
    if (now < receive_idle_until_) return false;
    receive_idle_until_ = kNever;
  }
  next_receive_ = std::max(next_receive_, first_);
  for (uint64_t burst = 1 + mood_.below(32); burst > 0;) {
    if (next_receive_ == first_ + messages_.size()) {
      if (all_drawn_) return false;
      draw_message();
    }
    Message& m = message(next_receive_);
    if (m.takes_receive()) {
      if (!post_receive_for(m)) return false;
      --burst;
    }
    ++next_receive_;
  }
  receive_idle_until_ = idle(now);
  return receive_idle_until_ == kNever;
}

// ---- completions

bool Flow::progress(TimePoint now) {
  bool more = poll_receives();
  more |= poll_sends();
  if (!complaint_.empty()) return false;
  more |= post_receives(now);
  more |= post_sends(now);
  return more;
}

bool Flow::poll_sends() {
  ibv_wc wc[16];
  const int count = from_.send_cq->poll(static_cast<int>(1 + mood_.below(16)), wc);
  for (int i = 0; i < count && complaint_.empty(); ++i) on_sent(wc[i]);
  return !from_.send_cq->empty();
}

bool Flow::poll_receives() {
  // Polls all receives: a message complete at the sender must have been received.
  ibv_wc wc[16];
  while (!to_.recv_cq->empty() && complaint_.empty()) {
    const int count = to_.recv_cq->poll(16, wc);
    for (int i = 0; i < count && complaint_.empty(); ++i) on_received(wc[i]);
  }
  return false;
}

void Flow::on_received(const ibv_wc& wc) {
  if (receives_.empty() || wc.wr_id != receives_completed_) {
    return complain(verbena::format("receive {} completed, {} was next", wc.wr_id, receives_completed_));
  }
  const Receive r = receives_.front();
  receives_.pop_front();
  ++receives_completed_;
  inbox_space_.give_back(r.place);
  if (wc.status != IBV_WC_SUCCESS) {
    if (receive_status_ == IBV_WC_SUCCESS) {
      receive_status_ = wc.status;
    } else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
      complain(
          verbena::format("receive {} has status {} after an error", wc.wr_id, static_cast<int>(wc.status)));
    }
    return;
  }
  if (receive_status_ != IBV_WC_SUCCESS) return complain("a receive succeeded after one had failed");
  if (r.message < first_) {
    // The sender has already given up on it; its packets were still under way.
    if (!failed()) complain(verbena::format("message {} was complete before it was received", r.message));
    return;
  }
  const Message& m = message(r.message);
  const ibv_wc_opcode opcode = m.is_write() ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (!m.posted || wc.opcode != opcode || wc.byte_len != m.length() ||
      ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != m.has_immediate() ||
      (m.has_immediate() && wc.imm_data != htobe32(m.immediate)) ||
      wc.src_qp != from_.qp->config().qpn.value() || wc.qp_num != to_.qp->config().qpn.value()) {
    return complain(verbena::format("message {} was received with a wrong completion", m.id));
  }
  if (((wc.wc_flags & IBV_WC_WITH_INV) != 0) != m.invalidates() ||
      (m.invalidates() && (wc.invalidated_rkey != m.immediate || window_.parent != nullptr))) {
    return complain(verbena::format("message {} has not closed its window", m.id));
  }
  if (m.invalidates()) open_window();
  const std::byte* sent = m.layout.gather(source_.data() + m.source_offset, scratch_);
  const uint32_t bytes = m.is_write() ? 0 : m.length();
  if (!r.layout.holds(inbox_.data() + r.place.offset, sent, bytes)) {
    return complain(verbena::format("message {} was not received as it was sent", m.id));
  }
  if (m.is_write() && !is_in_place(m))
    complain(verbena::format("message {} is not where it was written", m.id));
}

void Flow::on_sent(const ibv_wc& wc) {
  if (failed()) {  // the remaining requests are flushed one by one
    if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != first_ || messages_.empty()) {
      return complain(verbena::format("completion of {} with status {}, a flush of {} was next", wc.wr_id,
                                      static_cast<int>(wc.status), first_));
    }
    messages_.pop_front();
    ++first_;
    return;
  }
  if (wc.wr_id < first_ || wc.wr_id >= next_post_) {
    return complain(verbena::format("completion of {}, which was not posted", wc.wr_id));
  }
  while (first_ != wc.wr_id && complaint_.empty()) {
    if ((message(first_).flags & IBV_SEND_SIGNALED) != 0) {
      return complain(verbena::format("message {} has no completion", first_));
    }
    retire();
  }
  if (!complaint_.empty()) return;
  if (wc.qp_num != from_.qp->config().qpn.value()) return complain("a completion names another QP");
  if (wc.status != IBV_WC_SUCCESS) {
    status_ = wc.status;
    failed_message_ = wc.wr_id;
    if (!end_expected_ && !is_faulty(message(first_)) && options_.fault == Fault::kNone) {
      complain(verbena::format("message {} failed with status {}", wc.wr_id, static_cast<int>(wc.status)));
    }
    messages_.pop_front();
    ++first_;
    return;
  }
  const Message& m = message(first_);
  if ((m.flags & IBV_SEND_SIGNALED) == 0)
    return complain(verbena::format("message {} asked for no completion", m.id));
  if (m.opcode == IBV_WR_RDMA_READ && wc.byte_len != m.length()) {
    return complain(verbena::format("message {} completed with a wrong length", m.id));
  }
  retire();
}

// The oldest message is complete at the sender: checks its effects at the receiver.
void Flow::retire() {
  const Message& m = message(first_);
  if (m.takes_receive() && m.receive >= receives_completed_) {
    return complain(verbena::format("message {} is complete, but was not received", m.id));
  }
  if (is_faulty(m)) return complain(verbena::format("message {} succeeded though it was faulty", m.id));
  if (!is_in_place(m)) return complain(verbena::format("message {} did not do what it should", m.id));
  if (m.is_write() || m.is_word()) target_space_.give_back(m.place);
  if (m.opcode == IBV_WR_RDMA_READ || m.is_atomic()) landing_space_.give_back(m.place);
  messages_.pop_front();
  ++first_;
}

bool Flow::is_in_place(const Message& m) {
  if (m.is_write()) {
    const std::byte* sent = m.layout.gather(source_.data() + m.source_offset, scratch_);
    return std::equal(sent, sent + m.length(), target_.data() + m.place.offset);
  }
  if (m.is_word()) {
    const std::byte* sent = source_.data() + m.source_offset;
    return std::equal(sent, sent + 8, target_.data() + m.place.offset);
  }
  if (m.opcode == IBV_WR_RDMA_READ) {
    return m.layout.holds(landing_.data() + m.place.offset, library_.data() + m.source_offset, m.length());
  }
  if (m.is_atomic() && !m.shared) {
    uint64_t original;
    std::memcpy(&original, landing_.data() + m.place.offset, sizeof original);
    return original == m.original;
  }
  return true;
}

bool Flow::finished() const {
  if (failed()) {
    const bool receiver_ended = to_.qp->state() == IBV_QPS_ERR;
    return first_ == next_post_ && (!receiver_ended || receives_.empty());
  }
  return all_drawn_ && messages_.empty() && receives_completed_ == receives_drawn_;
}

void Flow::complain(const std::string& what) {
  if (complaint_.empty()) {
    complaint_ = verbena::format("QP {:#x}: {}", from_.qp->config().qpn.value(), what);
  }
}

std::string Flow::progress_report() const {
  return verbena::format(
      "QP {:#x}: state {}, {} complete, {} posted, {} received, {} receives posted, status {}",
      from_.qp->config().qpn.value(), static_cast<int>(from_.qp->state()), first_, next_post_,
      receives_completed_, receives_posted_, static_cast<int>(status_));
}

}  // namespace verbena::transport
