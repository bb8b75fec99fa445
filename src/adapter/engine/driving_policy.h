// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/engine/attendance.h"
#include "adapter/engine/driving.h"
#include "adapter/engine/halt_polling.h"
#include "base/time.h"

namespace verbena::engine {

// Decides which thread drives a shard, that is, makes its progress: the application in its verbs, or the
// engine thread. Events come in with their time, decisions go out. The policy reads no clock, does no I/O and
// wakes no thread. The shard does that, and calls the policy with its lock held.
//
// An application that has called verbs without a pause for a while drives. Then no thread listens for
// packets, and the engine thread only checks from time to time whether the application is still active.
// Otherwise the engine thread drives: it sleeps until a packet arrives (it listens), or busy-polls for a
// moment first (HaltPolling).
//
// The bell is the shard's wake-up, which other processes of this host ring. A thread of the application that
// waits for an event can sleep at the bell itself. Meanwhile the engine thread does not hear the bell, so one
// ring does not wake two threads. No thread hears the bell while the application's thread busy-polls before
// it sleeps, nor just after it has left the bell with its event. The application's thread is expected back
// soon, at the bell or in a verb. If it does not come, the engine thread takes the bell over, at the latest
// when it next looks. To hand the bell over for each message would cost more than the message.
class DrivingPolicy {
 public:
  // The work that is left in the shard, apart from the timers of QPs.
  struct Pending {
    bool now = false;               // a QP can go on at once
    bool port_full = false;         // a QP waits for room in a port
    bool acknowledgements = false;  // the engine thread holds some back
    // The next time that must be kept exactly: an alarm, or the end of a pause between packets. kNever: none.
    TimePoint exact = kNever;
  };

  // Tells whether the shard has an engine thread. Without one, the policy decides as if an engine thread
  // drove, but wakes no thread.
  void set_engine(bool present) { engine_present_ = present; }
  // Allows or forbids busy polling (HaltPolling): by the engine thread after it has served a packet, and by a
  // thread before it sleeps at the bell. Forbidden at first.
  void set_halt_polling(bool on) { halt_polling_on_ = on; }
  // Tells whether a source of packets has no descriptor that reports them, so that the engine thread has to
  // poll it.
  void set_must_be_asked(bool must) { must_be_asked_ = must; }

  // ---- the application's threads, in a verb

  // A thread has entered a verb.
  void enters(TimePoint now);

  // A thread has polled in its verb and received `received` packets. Returns what to do next.
  struct Polled {
    // The engine thread stops listening. The caller wakes it, so that it looks from time to time.
    bool takes_over = false;
    bool yields = false;  // the application's thread should offer its processor to others
  };
  Polled polled(TimePoint now, uint32_t received);

  // The thread leaves the verb. Does nothing if it has not entered one.
  void leaves(TimePoint now);

  // The application is about to sleep until an event. Returns true if the engine thread must listen from now
  // on. (A thread that has just left the bell is expected back there. If it does not come, the engine thread
  // finds out.)
  bool expects_sleep();

  // ---- a thread of the application that sleeps at the bell until an event

  // comes_to_bell(): a thread has come to the bell. served_at_bell(): this thread has its event. `by_memory`:
  // it has found the event itself, in shared memory. If false, the engine thread has found it, for example by
  // a port.
  void comes_to_bell() { rests_at_bell_ = false; }
  void served_at_bell(TimePoint now, bool by_memory) {
    if (!rests_at_bell_) return;
    if (by_memory) {
      bell_polling_.served(now);
    } else {
      bell_polling_.served_by_others();
    }
  }
  // The thread has come to the bell, or has busy-polled, and has found nothing. Returns true if it should
  // busy-poll, or go on busy-polling, before it sleeps. No thread hears the bell meanwhile.
  bool asks_at_bell(TimePoint now);
  // The thread has busy-polled and noticed this demand for processors.
  void asked_on_at_bell(TimePoint now, const Demand& demand) { bell_polling_.asked_on(now, demand); }
  // The thread is about to sleep at the bell. Returns true if the engine thread must listen from now on, to
  // everything but the bell.
  bool sleeps_at_bell();
  // The thread has its event and returns to the application. Returns the time by which the engine thread must
  // look; nothing if it comes by then anyway.
  std::optional<TimePoint> leaves_bell(TimePoint now);
  // The thread will not come back. The engine thread takes the bell.
  void gives_bell_up();
  // Returns whether the engine thread hears the bell when it listens. Otherwise a thread of the application
  // sleeps there, or is expected back.
  bool engine_has_bell() const { return bell_is_with_ == Hearer::kEngine; }
  // Returns whether no thread hears the bell for a moment. Then other processes need not ring it.
  bool is_away_from_bell() const { return bell_is_with_ == Hearer::kAway; }

  // Returns whether the application is sure to call a verb soon. Then work that is cheaper in its next verb
  // may wait.
  bool application_drives() const { return engine_present_ && !engine_drives_; }
  // Returns whether acknowledgements may wait for the application's next verb. That is so if the application
  // drives, or a thread has just left the bell. It is also so if a thread is in a verb and has been active
  // for kTakeOverAfter, even if earlier wrong guesses demand a longer time. If no thread is in a verb,
  // awaits_reply() decides.
  bool acknowledgements_wait(TimePoint now) const {
    return application_drives() || is_away_from_bell() ||
           (engine_drives() && (visit_ ? visits_steadily(now) : awaits_reply(now)));
  }
  // Acknowledgements are held back. Returns the time by which the engine thread must look, if it would
  // otherwise come too late to send them; else kNever.
  TimePoint holds_acknowledgements(TimePoint now);
  bool engine_drives() const { return engine_present_ && engine_drives_; }

  // Returns whether the engine thread may sleep too long for new work, and has not been told to come sooner.
  bool engine_may_oversleep() const {
    return engine_drives() && !engine_told_ && !halt_polling_.asks() && !is_away_from_bell();
  }
  // Returns whether the engine thread must be woken, given what is pending. `next_timer()` returns when the
  // next timer of a QP is due, which may be kTimerSlack late. It is called last, as it costs more than all
  // the rest. REQUIRES: engine_may_oversleep()
  template <class NextTimer>
  bool must_wake_engine(const Pending& pending, NextTimer next_timer) {
    engine_told_ =
        pending.now || pending.port_full || pending.exact < engine_comes_at_ || is_too_late_for(next_timer());
    return engine_told_;
  }

  // ---- the engine thread

  // The engine thread finds the shard's lock taken. Returns the time when it tries again. Called without the
  // lock, as asks() may be: both use only state that the engine thread alone changes.
  TimePoint finds_shard_busy(TimePoint now);

  // The engine thread has the lock. Returns the time by which it must look again if the application drives.
  // Returns nothing if the engine thread drives.
  std::optional<TimePoint> comes(TimePoint now);

  // The engine thread has received packets for the application.
  void served(TimePoint now, uint32_t received);
  // A thread of the application has found the lock taken meanwhile.
  void application_waited(TimePoint now) { attendance_.waits(now); }

  // Returns whether acknowledgements of received packets may wait for the application's next verb, because it
  // has only just left its last verb. With the application's reply they cost nothing. The peer may poll its
  // own memory for the reply. As long as its last request is incomplete, it also polls its completion queue,
  // and so receives the reply itself. If the acknowledgement came at once, this polling would stop, and the
  // peer's engine thread would have to be woken for the reply. Then both sides would continue like that, at
  // several times the latency.
  bool awaits_reply(TimePoint now) const { return now < attendance_.near_until(); }

  // The engine thread has busy-polled and noticed this demand for processors.
  void asked_on(TimePoint now, const Demand& demand) { halt_polling_.asked_on(now, demand); }

  // The engine thread has done its work. Returns what it does next.
  struct Rest {
    TimePoint comes_at = kNever;  // the latest time to come again
    bool asks = false;            // it busy-polls instead of listening, with the lock free in between
  };
  Rest rests(TimePoint now, const Pending& pending, TimePoint next_timer = kNever);

  // Returns whether the engine thread busy-polls now. Only the engine thread may call this, also without the
  // lock: only it changes the state.
  bool asks(TimePoint now) const { return halt_polling_.asks() && !halt_polling_.is_over(now); }

 private:
  bool visits_steadily(TimePoint now) const { return visit_ && attendance_.lasts(now) >= kTakeOverAfter; }
  bool is_too_late_for(TimePoint timer) const {
    return timer != kNever && timer + kTimerSlack < engine_comes_at_;
  }

  // The state of a thread of the application in its current verb.
  struct Visit {
    bool yields = false;
    uint32_t received = 0;
  };

  // The thread that hears the bell.
  enum class Hearer : uint8_t {
    kEngine,  // the engine thread, if it listens
    kThread,  // a thread of the application, which sleeps there
    kAway,    // none: the thread is expected back, or is at the bell and busy-polls
  };

  bool engine_present_ = false;
  bool must_be_asked_ = false;
  bool engine_drives_ = false;
  bool halt_polling_on_ = false;

  Attendance attendance_;
  HaltPolling halt_polling_;
  std::optional<Visit> visit_;
  uint32_t idle_polls_ = 0;  // polls since one last received something
  Duration take_over_after_ = kTakeOverAfter;

  Hearer bell_is_with_ = Hearer::kEngine;
  HaltPolling bell_polling_{Duration::zero()};
  bool rests_at_bell_ = false;  // the thread there has found nothing since it came
  // After this time the engine thread checks on a thread that left the bell.
  Duration away_interval_ = kFirstLook;

  Duration look_interval_ = kFirstLook;
  Duration busy_interval_ = kFirstLook;
  Duration ask_interval_ = kFirstLook;
  uint32_t steady_looks_ = 0;
  bool brought_something_ = false;  // the engine thread has received packets since it came
  TimePoint engine_comes_at_ = kNever;
  bool engine_told_ = false;  // that it must come sooner
};

}  // namespace verbena::engine
