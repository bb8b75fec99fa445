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

// The shard's view of its engine thread (EngineThread). The shard's lock is held in all calls but
// wake(), which needs no lock.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Wakes the engine thread.
  virtual void wake() = 0;
  // Makes the engine thread listen for arriving packets, or not: on the descriptors of the ports and of
  // everything attached.
  virtual void listen(bool on) = 0;
  // attach() adds a descriptor by which packets come. The caller detaches it before closing it. Errors: the
  // kernel's, ENOMEM.
  virtual Result<void> attach(int fd, bool listening) = 0;
  // Like attach(), for an epoll set (PolledSets): the engine thread may look at it once while it does not
  // listen.
  virtual Result<void> attach_set(int set) = 0;
  virtual void detach(int fd) = 0;
  // attach_bell() sets the shard's bell (Input::bell()); nullptr: none. Errors: the kernel's. hear_bell()
  // tells whether the engine thread hears the bell. It should not while another thread hears it, or while a
  // ring need wake no thread.
  virtual Result<void> attach_bell(const Bell* bell) = 0;
  virtual void hear_bell(bool on) = 0;
  // Makes the engine thread look at this time, or earlier.
  virtual void come_by(TimePoint time) = 0;
  // Returns whether its descriptors are still its own (base/own_fd.h).
  virtual bool is_whole() const { return true; }
  // Called when its descriptors, or others of the shard, are not ours any more. It touches none of them from
  // then on, and its thread ends. `is_first`: the loss was found in this shard, so the engine must be told.
  virtual void on_loss(bool is_first) { (void)is_first; }
};

// A part of the software adapter: some ports, one slot of QP numbers, and all state of its QPs.
//
// Any thread that is awake drives the shard, that is, makes its progress. Threads of the application do so in
// ring() and poll(). They take the lock if it is free, and otherwise leave their work to its holder. The
// engine thread does so in run_engine(). Everything that takes long or must not be skipped (adding a QP,
// registering memory, a state change) runs in exclusively().
class alignas(kCacheLine) Shard : private net::PacketHandler {
 public:
  using Clock = TimePoint (*)();
  // Without a port there is no wire, and packets are lost. `beginning` determines the first QPN. Every packet
  // shows QPNs, so nothing else may be derived from this number.
  Shard(uint32_t slot, net::PortList ports, protocol::StatusPage& status, uint64_t beginning,
        Clock clock = MonotonicClock::now);
  ~Shard() override;

  // Sets the engine thread's interface; nullptr when that thread has ended. REQUIRES: no other call is under
  // way
  void set_sleeper(Sleeper* sleeper) {
    sleeper_ = sleeper;
    policy_.set_engine(sleeper != nullptr);
  }

  // Allows busy polling (HaltPolling): by the engine thread after it has served a packet, and by a thread
  // before it sleeps at the bell. Set once, before other calls; off at first.
  void set_halt_polling(bool on) {
    policy_.set_halt_polling(on);
    if (on) bell_demand_.emplace();
  }

  uint32_t slot() const { return slot_; }
  // Returns the shard's lock. A thread that holds it may be using memory that it found by a key
  // (adapter/memory/key_table.h).
  const SectionLock& sections() const { return lock_; }
  // Calls visit(descriptor) for each port that has a descriptor to wait for packets.
  template <class Visit>
  void for_each_receive_fd(Visit visit) const {
    ports_.for_each_receive_fd(visit);
  }

  // ---- any thread

  // Called when the QP has new requests, or the application wants earlier ones to go on. Sends them, or
  // leaves that to the lock's holder.
  void ring(transport::QueuePair& qp);

  // Makes progress for an application that found its completion queue empty.
  void poll();

  // Called when the application is about to sleep until an event: arriving packets must wake the engine
  // thread from now on.
  void expect_sleep();

  // ---- a thread that sleeps at the bell until it has an event (EventWait)

  // Returns the wake-up (bell) that rings when packets come by shared memory; nullptr: none now.
  const Bell* bell() const { return bell_.load(std::memory_order_acquire); }
  enum class AtBell : uint8_t {
    kNot,     // another thread is at the bell, or there is no bell any more
    kAsks,    // nothing has come yet, but may come at once: the thread busy-polls, then calls looks_at_bell()
    kSleeps,  // nothing has come: the bell rings from now on when something comes, and the thread sleeps
    kServed,  // the thread has its event, and has left the bell
  };
  // The calling thread wants to sleep at the bell. Receives what has come. Returns what the thread does next.
  AtBell goes_to_bell(const queues::EventChannel::Waiter& waiter);
  // The calling thread has been woken at the bell, or has busy-polled and noticed this demand. Receives what
  // has come. Returns what the thread does next.
  AtBell looks_at_bell(const queues::EventChannel::Waiter& waiter, const Demand& demand = {});
  // Relaxes for a moment between two looks of a thread that busy-polls at the bell. Returns the demand for
  // processors.
  Demand pauses_at_bell() { return bell_demand_->pause(); }
  // The calling thread leaves the bell, and may never come back. Does nothing if it is not there.
  void gives_bell_up();

  // Runs `action` with the shard's lock held, then does the work that resulted from it. Returns action()'s
  // result.
  template <class Action>
  auto exclusively(Action action) {
    struct Section {
      Shard& shard;
      explicit Section(Shard& s) : shard(s) { shard.enter(); }
      ~Section() { shard.leave(Gathering::kNo); }
    } section(*this);
    return action();
  }

  // Returns the shard whose lock the calling thread holds; nullptr if none.
  static Shard* current() { return current_; }

  // Returns the number of QPs.
  uint32_t qp_count() const { return qp_count_.load(std::memory_order_relaxed); }

  // ---- inside exclusively()

  // Returns the source of routes for the shard's QPs.
  transport::Routes& routes() { return ports_; }
  // Returns the counters for packets that come by no port.
  net::PortCounters& counters() { return ports_.counters(); }
  // Sets the export table that shows other processes what QPs accept. Set once, before there are QPs.
  void set_board(OwnBoard* board) { board_ = board; }
  // Sets the shared-memory routes that QPs prefer to ports; nullptr: none from now on.
  void set_local_ways(LocalWays* ways) { ports_.prefer(ways); }
  // Makes the engine thread look as soon as it can.
  void wake_engine() {
    if (sleeper_ != nullptr) sleeper_->wake();
  }
  // Receives what has arrived by now, and sends what waits, as a hardware adapter would have done. Called
  // before a QP ends, and before the program learns that a connection has ended. Otherwise a side could lose
  // a message that had arrived, or its acknowledgement.
  void settle();
  // Sends at once the packets that QPs have given to the ports.
  void push() { ports_.push(); }

  // Calls visit(QueuePair&) for each QP.
  template <class Visit>
  void for_each(Visit visit) {
    for (transport::QueuePair* qp : qps_) {
      if (qp != nullptr) visit(*qp);
    }
  }

  // Reserves a QPN that no QP has, and that has been unused for as long as possible. Errors: ENOMEM: the slot
  // is full.
  Result<roce::Qpn> reserve_qpn();
  void release_qpn(roce::Qpn qpn);
  protocol::QpStatus& status_of(roce::Qpn qpn) { return status_.qps[qpn.index()]; }
  protocol::QpMore& more_of(roce::Qpn qpn) { return status_.more[qpn.index()]; }
  protocol::PathStatus& path_status_of(roce::Qpn qpn) { return status_.paths[qpn.index()]; }
  // Returns the recorder of the QPs' events. After trace_details(true) it also gets details of each packet.
  trace::Recorder& trace() { return trace_; }
  void trace_details(bool on);
  // Returns the list of the process's objects. Used only of the process's first shard, Engine::home().
  ShownObjects& shown_objects() { return shown_objects_; }
  protocol::QpDetails& details_of(roce::Qpn qpn) { return status_.details[qpn.index()]; }

  // Returns the QP with this number; nullptr if there is none in this shard.
  transport::QueuePair* find(roce::Qpn qpn) const {
    return qpn.slot() == slot_ ? qps_[qpn.index()] : nullptr;
  }

  void add(transport::QueuePair& qp);
  void remove(transport::QueuePair& qp);
  // Called after something other than a packet has changed the QP: its state or an attribute. Updates what
  // others see of it.
  void touched(transport::QueuePair& qp);

  // Adds a source of packets, which is polled whenever the ports are. Errors: those of Sleeper::attach().
  // REQUIRES: the shard is not abandoned
  Result<void> add_input(Input& input);
  // REQUIRES: the input was added
  void remove_input(Input& input);
  // Delivers a packet of an input to a QP. REQUIRES: called from Input::receive()
  void deliver(transport::QueuePair& qp, const transport::IncomingPacket& incoming);
  // Delivers a packet of an input that needs no closer look (QueuePair::on_plain_send()). Returns false if it
  // does need one: then nothing has been done, and the caller uses deliver(). REQUIRES: called from
  // Input::receive()
  bool deliver_plainly(transport::QueuePair& qp, const transport::PlainSend& message, const roce::Path& path);
  // Calls action(), which changes a QP for another reason than a packet, and does the work that results from
  // the change.
  template <class Action>
  void act_on(transport::QueuePair& qp, Action action) {
    const ibv_qp_state before = qp.state();
    action();
    acted_on(qp, before);
  }

  // Sets an alarm: on_alarm() is called `after` from now by the thread that then drives the shard. An alarm
  // that is set already is moved. May be called from callbacks that hold the shard's lock, such as listeners
  // of completion queues.
  void set_alarm(Alarm& alarm, Duration after);
  void cancel_alarm(Alarm& alarm) { alarms_.cancel(alarm); }

  // ---- the engine thread

  struct EngineView {
    TimePoint wake_at = kNever;  // the latest time to come again
    int send_fd = -1;            // the port is full until this descriptor is writable; -1: none
    // The thread does not sleep but busy-polls: it comes again at once, and nobody listens.
    bool asks = false;
  };
  // Makes progress if the application has stopped polling, and returns what to wait for. `demand`: the engine
  // thread's observation since its last call, if it busy-polled.
  EngineView run_engine(const Demand& demand = {});

  // ---- descriptors that the application has closed, or given to others

  // Returns whether descriptors of the shard are lost: the application has closed them or reused their
  // numbers. Then the shard has no wire and no peers, and calls are harmless. Each thread that drives it
  // checks at most once in a millisecond.
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  // Called when another shard of the engine is lost: this one is given up as well.
  void lose() {
    exclusively([this] {
      if (!abandoned_) lose_descriptors(false);
    });
  }

  // Sends the acknowledgements that are held back. Called when the process is about to exit.
  void flush_at_exit();

  // ---- around fork()

  // Takes the lock, so that the child gets a consistent state. Returns false if the lock was not free soon,
  // as when a signal handler forks while its own thread holds the lock.
  bool before_fork();
  // REQUIRES: before_fork() returned true
  void after_fork_in_parent() { leave(Gathering::kNo); }
  // For the child, whether or not before_fork() returned true: nothing here is its own any more. Later calls
  // are harmless, and send nothing.
  void abandon();

 private:
  // Whether acknowledgements may be held for the application's next verb, and whether small requests may wait
  // for others to be sent together.
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
  // Returns whether transmit_ready() has work. `holds`: acknowledgements are held back.
  bool has_to_transmit(bool holds) const {
    return !ready_.empty() || ports_.any_full() || !(holds || acknowledging_.empty());
  }
  void transmit_ready(Acknowledgements acknowledgements, Gathering gathering);
  // Sends everything, including acknowledgements and requests that could wait.
  void send_what_waits();
  void release_acknowledgements();
  // The kind of visit: a polling thread need not poll the ports each time, a thread at the bell never does.
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

  // With the initial-exec model, access needs no function call in each verb.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Shard* current_ = nullptr;

  SectionLock lock_;
  Doorbells doorbells_;
  std::atomic<bool> application_waits_{false};  // a verb found the lock taken
  std::atomic<bool> engine_waits_{false};       // the engine thread found the lock taken
  std::atomic<const Bell*> bell_{nullptr};
  bool abandoned_ = false;
  std::atomic<bool> lost_{false};  // the shard's descriptors are lost; then abandoned_ is true, too
  // When the calling thread next checks descriptors and signal handlers, whatever shard it then drives.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local TimePoint next_look_{};

  // Under the lock
  RecentClock clock_;
  using ReadyList = Ports::ReadyList;
  using AcknowledgementList =
      IntrusiveList<transport::QueuePair, &transport::QueuePair::acknowledgement_hook>;
  std::vector<transport::QueuePair*> qps_;  // by Qpn::index()
  std::vector<bool> reserved_;              // likewise
  QpRound shown_qps_;                       // likewise: the occupied places of qps_, for show_some_progress()
  uint32_t next_index_;
  std::atomic<uint32_t> qp_count_{0};
  Ports ports_;
  PortAsking port_asking_;
  IntrusiveList<Input, &Input::input_hook> inputs_;
  std::optional<pthread_t> at_bell_;  // the thread that sleeps or busy-polls at the bell; none: nobody does
  // The demand that at_bell_ sees. Only that thread uses it, without the lock. None: busy polling is off.
  std::optional<ProcessorDemand> bell_demand_;
  ReadyList ready_;      // QPs that can send now: none of them waits for its port
  ReadyList gathering_;  // QPs with small requests that wait for more to be posted
  TimePoint gathering_since_{};
  TimePoint posted_at_{};
  AcknowledgementList acknowledging_;
  TimePoint now_;
  TimerWheel<transport::QueuePair> timers_;
  Alarms alarms_;
  transport::QueuePair* delivered_to_ = nullptr;  // a QP whose received packets are not noted yet; null: none
  uint32_t requests_since_look_ = 0;
  bool many_came_ = false;  // many messages came by shared memory since the lock was taken
  // When a QP that is paced may send again; no timer may be later. kNever: none.
  TimePoint paced_until_ = kNever;
  DrivingPolicy policy_;  // who drives
};

}  // namespace verbena::engine
