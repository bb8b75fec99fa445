// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include <pthread.h>

#include "adapter/engine/alarms.h"
#include "adapter/engine/doorbells.h"
#include "adapter/engine/driving_policy.h"
#include "adapter/engine/input.h"
#include "adapter/engine/port_asking.h"
#include "adapter/engine/ports.h"
#include "adapter/engine/qp_round.h"
#include "adapter/engine/shown_objects.h"
#include "adapter/engine/timer_wheel.h"
#include "adapter/net/port.h"
#include "adapter/queues/event_channel.h"
#include "adapter/shm/own_board.h"
#include "adapter/transport/queue_pair.h"
#include "base/bell.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/recent_clock.h"
#include "base/result.h"
#include "base/section_lock.h"
#include "base/time.h"
#include "control/client/client.h"
#include "control/protocol/status_page.h"
#include "observe/trace/recorder.h"

namespace verbena::engine {

static_assert(protocol::kQpNumbers == transport::kFirstMoreCounter);
static_assert(sizeof(protocol::QpMore) == sizeof(transport::QpMoreCounters));
static_assert(protocol::kQpsPerSlot == roce::Qpn::kPerSlot);

// Told by the shard when its engine thread, asleep, should look.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Wakes the engine thread.
  virtual void wake() = 0;
  // Makes the engine thread hear arriving packets, or not: those of the port and of everything attached.
  virtual void listen(bool on) = 0;
  // From now on another descriptor gives packets; detached before it is closed.
  virtual Result<void> attach(int fd, bool listening) = 0;
  virtual void detach(int fd) = 0;
  // Whether it is to hear this bell when it listens: not while somebody else does, or nobody. nullptr: none.
  // Error: it cannot be heard.
  virtual Result<void> attach_bell(const Bell* bell) = 0;
  virtual void hear_bell(bool on) = 0;
  // The engine thread looks then, or earlier.
  virtual void come_by(TimePoint time) = 0;
  // Whether its descriptors are still its own (base/own_fd.h).
  virtual bool is_whole() const { return true; }
  // They are not, or others of the shard are not: it touches none any more, and its thread ends. `is_first`:
  // it is found here, and the engine is to hear of it.
  virtual void on_loss(bool is_first) { (void)is_first; }
};

// A shard: some ports, one QPN slot, all state of its QPs.
//
// A thread that is awake drives it: one of the application's in ring() and poll(), which take the lock if it
// is free and else leave their work to the holder, or the engine thread in run_engine(). Everything that
// takes long or must not fail to happen (adding a QP, registering memory, a state change) runs under
// exclusively().
class alignas(kCacheLine) Shard : private net::PacketHandler {
 public:
  using Clock = TimePoint (*)();
  // Without a port there is no wire, and packets are lost. `beginning` says where QPNs begin, which everybody
  // sees: nothing else comes of it.
  Shard(uint32_t slot, net::PortList ports, protocol::StatusPage& status, uint64_t beginning,
        Clock clock = MonotonicClock::now);
  ~Shard() override;

  // Set once, before any other call.
  void set_sleeper(Sleeper* sleeper) {
    sleeper_ = sleeper;
    policy_.set_engine(sleeper != nullptr);
  }

  // Whether the engine thread may ask on after it has served a packet, and a thread before it sleeps at the
  // bell. Set once, likewise; off at first.
  void set_halt_polling(bool on) {
    policy_.set_halt_polling(on);
    if (on) bell_demand_.emplace();
  }

  uint32_t slot() const { return slot_; }
  // A thread in a section of it may be using memory that it found by a key (adapter/memory/key_table.h).
  const SectionLock& sections() const { return lock_; }
  // Calls visit(descriptor) for each port that has one by which packets are heard of.
  template <class Visit>
  void for_each_receive_fd(Visit visit) const {
    ports_.for_each_receive_fd(visit);
  }

  // ---- any thread

  // The QP has new requests (or the application wants what it posted to go on).
  void ring(transport::QueuePair& qp);

  // Progress on behalf of an application that found its completion queue empty.
  void poll();

  // The application is about to sleep until an event: arriving packets must wake the engine thread from now
  // on.
  void expect_sleep();

  // ---- a thread that sleeps at the bell until it has an event (EventWait)

  // What rings when packets come by memory; nullptr: they do not, now.
  const Bell* bell() const { return bell_.load(std::memory_order_acquire); }
  enum class AtBell : uint8_t {
    kNot,     // another thread is there, or there is no bell any more
    kAsks,    // nothing has come yet, but may at once: it looks again before it sleeps
    kSleeps,  // it rings from now on when something comes
    kServed,  // the waiter has its event; it has left the bell
  };
  // The thread wants to sleep at the bell. Takes what is there.
  AtBell goes_to_bell(const queues::EventChannel::Waiter& waiter);
  // It has been woken, or asks on and this is what it noticed meanwhile. Takes what has come.
  AtBell looks_at_bell(const queues::EventChannel::Waiter& waiter, const Demand& demand = {});
  // Between two looks of one that asks on.
  Demand pauses_at_bell() { return bell_demand_->pause(); }
  // It leaves, and may never come back.
  void gives_bell_up();

  // Runs `action` with the shard's lock held and then does whatever work came of it.
  template <class Action>
  auto exclusively(Action action) {
    struct Section {
      Shard& shard;
      explicit Section(Shard& s) : shard(s) { shard.enter(); }
      ~Section() { shard.leave(Gathering::kNo); }
    } section(*this);
    return action();
  }

  // The shard in whose section the calling thread is; nullptr if it is in none.
  static Shard* current() { return current_; }

  // How many QPs there are.
  uint32_t qp_count() const { return qp_count_.load(std::memory_order_relaxed); }

  // ---- inside exclusively()

  // For the QPs that the shard is to have.
  transport::Routes& routes() { return ports_; }
  // Where what comes in by no port is counted.
  net::PortCounters& counters() { return ports_.counters(); }
  // Where other processes see what QPs take. Set once, before there are QPs.
  void set_board(OwnBoard* board) { board_ = board; }
  // What QPs go by rather than by ports; nullptr: nothing (any more).
  void set_local_ways(LocalWays* ways) { ports_.prefer(ways); }
  // The engine thread looks as soon as it can.
  void wake_engine() {
    if (sleeper_ != nullptr) sleeper_->wake();
  }
  // Takes what has come by now, and sends what waits, as an adapter would have: before a QP ends, and before
  // the program hears that a connection has ended. Neither side may lose a message that had arrived, or the
  // acknowledgement of one.
  void settle();
  // Sends at once what QPs have given to the ports.
  void push() { ports_.push(); }

  // Calls visit(QueuePair&) for each QP there is.
  template <class Visit>
  void for_each(Visit visit) {
    for (transport::QueuePair* qp : qps_) {
      if (qp != nullptr) visit(*qp);
    }
  }

  // A QPN that no QP has, not used for as long as possible. ENOMEM when the slot is full.
  Result<roce::Qpn> reserve_qpn();
  void release_qpn(roce::Qpn qpn);
  protocol::QpStatus& status_of(roce::Qpn qpn) { return status_.qps[qpn.index()]; }
  protocol::QpMore& more_of(roce::Qpn qpn) { return status_.more[qpn.index()]; }
  protocol::PathStatus& path_status_of(roce::Qpn qpn) { return status_.paths[qpn.index()]; }
  // What happens to the QPs goes there. Details of each packet, too, from trace_details(true) on.
  trace::Recorder& trace() { return trace_; }
  void trace_details(bool on);
  // The list of the process's objects is on its home's page.
  ShownObjects& shown_objects() { return shown_objects_; }
  protocol::QpDetails& details_of(roce::Qpn qpn) { return status_.details[qpn.index()]; }

  // The QP of this number; nullptr if there is none, or not here.
  transport::QueuePair* find(roce::Qpn qpn) const {
    return qpn.slot() == slot_ ? qps_[qpn.index()] : nullptr;
  }

  void add(transport::QueuePair& qp);
  void remove(transport::QueuePair& qp);
  // After something changed the QP from outside: a state, an attribute.
  void touched(transport::QueuePair& qp);

  // Another source of packets, asked from now on whenever the port is. REQUIRES: the shard is not abandoned
  Result<void> add_input(Input& input);
  // REQUIRES: the input was added
  void remove_input(Input& input);
  // A packet that an input has for a QP. Not to be called but from Input::receive().
  void deliver(transport::QueuePair& qp, const transport::IncomingPacket& incoming);
  // The same for one that needs no longer look (QueuePair::on_plain_send()). False: it does, and deliver() is
  // to be called.
  bool deliver_plainly(transport::QueuePair& qp, const transport::PlainSend& message, const roce::Path& path);
  // The same for whatever else an input does to a QP: calls action(), and does what comes of it.
  template <class Action>
  void act_on(transport::QueuePair& qp, Action action) {
    const ibv_qp_state before = qp.state();
    action();
    acted_on(qp, before);
  }

  // Has on_alarm() called `after` from now, by the thread that drives the shard then. An alarm that is set
  // moves. Also from within what the shard calls with its lock held, as listeners of completion queues are.
  void set_alarm(Alarm& alarm, Duration after);
  void cancel_alarm(Alarm& alarm) { alarms_.cancel(alarm); }

  // ---- the engine thread

  struct EngineView {
    TimePoint wake_at = kNever;  // the latest moment at which to come again
    int send_fd = -1;            // the port is full until this descriptor is writable
    bool asks = false;           // it does not wait, but comes again at once: nobody listens
  };
  // Progress if the application has stopped polling, and what to wait for next. `demand`: what it noticed
  // since it was here last, if it asked on.
  EngineView run_engine(const Demand& demand = {});

  // ---- descriptors that the application has closed, or given to others

  // Some that are ours were: from then on the shard has no wire and no peers, and what is done with it is
  // harmless. Looked for once in a millisecond at most, by each thread that drives it.
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  // Another shard of the engine was found so.
  void lose() {
    exclusively([this] {
      if (!abandoned_) lose_descriptors(false);
    });
  }

  // The process is about to exit: sends the acknowledgements that are held back.
  void flush_at_exit();

  // ---- around fork()

  // Takes the lock, so that the child gets everything here whole. False: it was not free soon, as when a
  // signal's handler forks while its own thread holds it.
  bool before_fork();
  // REQUIRES: before_fork() answered true
  void after_fork_in_parent() { leave(Gathering::kNo); }
  // In the child, whatever before_fork() answered: nothing here is ours any more. Calls are still harmless,
  // and do nothing on the wire.
  void abandon();

 private:
  // Acknowledgements may be held back for the application's next verb, small requests for others to join
  // them.
  enum class Acknowledgements : uint8_t { kHold, kSend };
  enum class Gathering : uint8_t { kNo, kAllowed };
  void on_packet(const transport::IncomingPacket& packet) override;
  void begin();
  void look_around();
  void show_progress(transport::QueuePair& qp);
  void show_peer(const transport::QueuePair& qp);
  void show_some_progress();
  void lose_descriptors(bool is_first);
  void flush_if_lost(transport::QueuePair& qp);
  void enter();
  bool enter_if_free();
  void let_go();
  bool engine_enters();
  void leave(Gathering gathering);
  bool must_come_back() const;
  void finish(Gathering gathering);
  bool finds_nothing() const;
  DrivingPolicy::Pending pending();
  void answer_doorbells();
  void ask_ports(bool wanted);
  void note(transport::QueuePair& qp);
  void delivered(transport::QueuePair& qp, ibv_qp_state before);
  void note_delivered();
  void acted_on(transport::QueuePair& qp, ibv_qp_state before);
  void run_timers(TimePoint now);
  // Whether transmit_ready() would do something; acknowledgements may be held back, or not.
  bool has_to_transmit(bool holds) const {
    return !ready_.empty() || ports_.any_full() || !(holds || acknowledging_.empty());
  }
  void transmit_ready(Acknowledgements acknowledgements, Gathering gathering);
  // All of it, whatever it could wait for.
  void send_what_waits();
  void release_acknowledgements();
  // Whose visit it is: a thread that polls need not ask the ports each time, one at the bell not at all.
  enum class Visitor : uint8_t { kPoller, kAtBell, kOther };
  uint32_t receive(uint32_t budget, Visitor visitor = Visitor::kOther);
  bool listen(bool on);
  bool listen_by_memory();
  bool takes_bell();
  bool is_at_bell() const;
  static bool is_served_on_the_way(AtBell answer, const queues::EventChannel::Waiter& waiter);
  AtBell wait_at_bell(const queues::EventChannel::Waiter& waiter);
  void count_drop(net::DropReason reason);
  void take_posted(transport::QueuePair& qp);
  bool gathers(transport::QueuePair& qp);
  void stop_gathering() { ready_.splice_back(gathering_); }
  void look_beside_requests();
  void wait_for_holder();
  void wait_in_poll();
  EngineView drive(Visitor visitor);

  const uint32_t slot_;
  protocol::StatusPage& status_;
  ShownObjects shown_objects_{slot_, status_};
  trace::Recorder trace_;
  bool traces_details_ = false;
  Sleeper* sleeper_ = nullptr;
  OwnBoard* board_ = nullptr;

  // Initial-exec: the other model is a call for each verb.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Shard* current_ = nullptr;

  SectionLock lock_;
  Doorbells doorbells_;
  std::atomic<bool> application_waits_{false};  // a verb found the lock taken
  std::atomic<bool> engine_waits_{false};       // the engine thread did
  std::atomic<const Bell*> bell_{nullptr};
  bool abandoned_ = false;
  std::atomic<bool> lost_{false};  // and abandoned, in this process
  // When the calling thread looks at its surroundings next, in whatever shard it is then.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local TimePoint next_look_{};

  // Under the lock
  RecentClock clock_;
  using ReadyList = Ports::ReadyList;
  using AcknowledgementList =
      IntrusiveList<transport::QueuePair, &transport::QueuePair::acknowledgement_hook>;
  std::vector<transport::QueuePair*> qps_;  // by Qpn::index()
  std::vector<bool> reserved_;              // likewise
  QpRound shown_qps_;                       // likewise: those of qps_, for show_some_progress()
  uint32_t next_index_;
  std::atomic<uint32_t> qp_count_{0};
  Ports ports_;
  PortAsking port_asking_;
  IntrusiveList<Input, &Input::input_hook> inputs_;
  std::optional<pthread_t> at_bell_;            // the thread that sleeps at the bell, or asks there
  std::optional<ProcessorDemand> bell_demand_;  // that thread's, while there is one, and without the lock
  ReadyList ready_;                             // of which none waits for its port
  ReadyList gathering_;                         // that wait for more to be posted, and for nothing else
  TimePoint gathering_since_{};
  TimePoint posted_at_{};
  AcknowledgementList acknowledging_;
  TimePoint now_;
  TimerWheel<transport::QueuePair> timers_;
  Alarms alarms_;
  transport::QueuePair* delivered_to_ = nullptr;  // packets, for which it has not been noted yet
  uint32_t requests_since_look_ = 0;
  bool many_came_ = false;          // messages by memory, since the lock was taken
  TimePoint paced_until_ = kNever;  // when a QP goes on that may not send faster; no timer may be late for it
  DrivingPolicy policy_;            // who drives
};

}  // namespace verbena::engine
