// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/engine/attendance.h"
#include "adapter/engine/driving.h"
#include "adapter/engine/halt_polling.h"
#include "base/time.h"

namespace verbena::engine {

// Decides who drives a shard: the application, from within its verbs, or the engine thread. Events come in
// with the time at which they happen, decisions go out. It reads no clock, does no I/O and wakes nobody: that
// is the shard's part, which calls it with its lock held.
//
// An application that has called verbs without a pause for a while drives: nobody listens for packets, and
// the engine thread only looks, now and then, whether the application is still there. At all other times the
// engine thread drives: it listens, that is, it sleeps until a packet arrives, or for a moment it asks
// (HaltPolling).
//
// One source the application can listen to itself, by a thread that sleeps until an event: the shard's bell,
// which other processes of this host ring. While the thread is there the engine thread does not hear the
// bell, and so is not woken beside it. When the thread has its event and leaves, nobody hears the bell for a
// moment: it is sure to come back soon, to the bell or to a verb. If it does not, the engine thread has the
// bell again, at the latest when it next looks. To change places for each message would cost more than the
// message. Nor does anybody hear the bell while the thread, back at it, asks on before it sleeps
// (HaltPolling).
class DrivingPolicy {
 public:
  // What is left to do in the shard, apart from the timers of QPs.
  struct Pending {
    bool now = false;               // a QP could go on at once
    bool port_full = false;         // a QP waits for room in a port
    bool acknowledgements = false;  // the engine thread holds some back
    // The next moment for which nobody may be late: an alarm, a pause between packets.
    TimePoint exact = kNever;
  };

  // There is an engine thread, or none any more. Without one the decisions are as if it drove, and wake
  // nobody.
  void set_engine(bool present) { engine_present_ = present; }
  // Whether the engine thread may ask on after it has served a packet, and a thread before it sleeps at the
  // bell. Not at first.
  void set_halt_polling(bool on) { halt_polling_on_ = on; }
  // A source of packets has no descriptor that would tell of them: the engine thread has to ask it.
  void set_must_be_asked(bool must) { must_be_asked_ = must; }

  // ---- the application's threads, in a verb

  void enters(TimePoint now);

  // It has polled, and received so many packets.
  struct Polled {
    bool takes_over = false;  // the engine thread stops listening, and is woken to look from here on
    bool yields = false;      // the application's thread offers its processor to others
  };
  Polled polled(TimePoint now, uint32_t received);

  // It leaves the verb. Nothing, if it has not entered one.
  void leaves(TimePoint now);

  // It is about to sleep until an event. True: the engine thread is to listen from now on. (A thread that has
  // been at the bell goes there again; if not, the engine thread finds out.)
  bool expects_sleep();

  // ---- a thread of the application that sleeps at the bell until an event

  // It comes. Then, once it has its event, it is served: by what came by memory, or by others, as by the
  // engine thread, which asks the ports itself.
  void comes_to_bell() { rests_at_bell_ = false; }
  void served_at_bell(TimePoint now, bool by_memory) {
    if (!rests_at_bell_) return;
    if (by_memory) {
      bell_polling_.served(now);
    } else {
      bell_polling_.served_by_others();
    }
  }
  // It has come, or asks on, and has found nothing. Whether it is to ask (on) before it sleeps: nobody hears
  // the bell meanwhile.
  bool asks_at_bell(TimePoint now);
  // It asked on, and this is what it noticed meanwhile.
  void asked_on_at_bell(TimePoint now, const Demand& demand) { bell_polling_.asked_on(now, demand); }
  // It is about to sleep there. True: the engine thread is to listen from now on, to all but the bell.
  bool sleeps_at_bell();
  // It has its event and goes back to the application. A time: the engine thread would come too late, and is
  // to come by then.
  std::optional<TimePoint> leaves_bell(TimePoint now);
  // It does not come back. The engine thread has the bell.
  void gives_bell_up();
  // Whether the engine thread hears the bell when it listens. Else somebody sleeps there, or is away from it.
  bool engine_has_bell() const { return bell_is_with_ == Hearer::kEngine; }
  // Whether nobody hears the bell for a moment: it need not ring.
  bool is_away_from_bell() const { return bell_is_with_ == Hearer::kAway; }

  // Whether the application is sure to come back soon, so that what gains by its next verb may wait for it.
  bool application_drives() const { return engine_present_ && !engine_drives_; }
  // The same of an acknowledgement, which may also wait for a thread that was at the bell, or for one in a
  // verb that has called verbs without a pause for long enough to drive, had the guess not been wrong before.
  // What waits for a reply (awaits_reply()) goes on to, also when nobody is in a verb who could give it.
  bool acknowledgements_wait(TimePoint now) const {
    return application_drives() || is_away_from_bell() ||
           (engine_drives() && (visit_ ? visits_steadily(now) : awaits_reply(now)));
  }
  // Some do. When the engine thread is to come by, as it would come too late for them; or kNever.
  TimePoint holds_acknowledgements(TimePoint now);
  bool engine_drives() const { return engine_present_ && engine_drives_; }

  // Whether the engine thread may sleep too long for what comes up, and has not been told to come sooner.
  bool engine_may_oversleep() const {
    return engine_drives() && !engine_told_ && !halt_polling_.asks() && !is_away_from_bell();
  }
  // Whether it does, given what is pending: then it is woken. `next_timer()` says when the next timer of a QP
  // is due, which may be kTimerSlack late; to find out costs more than all else, so it is asked last.
  // REQUIRES: engine_may_oversleep()
  template <class NextTimer>
  bool must_wake_engine(const Pending& pending, NextTimer next_timer) {
    engine_told_ =
        pending.now || pending.port_full || pending.exact < engine_comes_at_ || is_too_late_for(next_timer());
    return engine_told_;
  }

  // ---- the engine thread

  // It finds the shard's lock taken. Returns when it comes again. (The one call without the lock: it concerns
  // nobody else.)
  TimePoint finds_shard_busy(TimePoint now);

  // It has come. A time: the application drives, and the engine thread looks again by then. None: it drives.
  std::optional<TimePoint> comes(TimePoint now);

  // It has received so many packets for the application.
  void served(TimePoint now, uint32_t received);
  // Meanwhile a thread of the application found the shard's lock taken.
  void application_waited(TimePoint now) { attendance_.waits(now); }

  // Whether acknowledgements of what it has received may wait for the application, which has left its last
  // verb only just before: with its reply they cost nothing. And a peer that watches its memory, too, but has
  // yet to see its last request complete, goes on polling meanwhile, and so finds the reply itself.
  // Acknowledged at once it would leave, and its engine thread would have to be woken: then both sides go on
  // so, at several times the latency.
  bool awaits_reply(TimePoint now) const { return now < attendance_.near_until(); }

  // It asked on, and this is what it noticed meanwhile.
  void asked_on(TimePoint now, const Demand& demand) { halt_polling_.asked_on(now, demand); }

  // It is done.
  struct Rest {
    TimePoint comes_at = kNever;  // at the latest
    bool asks = false;            // it does not listen but asks on, with the lock free in between
  };
  Rest rests(TimePoint now, const Pending& pending, TimePoint next_timer = kNever);

  // Whether it asks on at present. For the engine thread, which alone changes it, without the lock too.
  bool asks(TimePoint now) const { return halt_polling_.asks() && !halt_polling_.is_over(now); }

 private:
  bool visits_steadily(TimePoint now) const { return visit_ && attendance_.lasts(now) >= kTakeOverAfter; }
  bool is_too_late_for(TimePoint timer) const {
    return timer != kNever && timer + kTimerSlack < engine_comes_at_;
  }

  // What a thread of the application does in the verb that it is in.
  struct Visit {
    bool yields = false;
    uint32_t received = 0;
  };

  // Who hears the bell.
  enum class Hearer : uint8_t {
    kEngine,  // the engine thread, if it listens
    kThread,  // a thread of the application, which sleeps there
    kAway,    // nobody: the thread is to come back, or is there and asks on
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
  bool rests_at_bell_ = false;           // the thread there has found nothing since it came
  Duration away_interval_ = kFirstLook;  // after so long the engine thread looks for who left the bell

  Duration look_interval_ = kFirstLook;
  Duration busy_interval_ = kFirstLook;
  Duration ask_interval_ = kFirstLook;
  uint32_t steady_looks_ = 0;
  bool brought_something_ = false;  // the engine thread's visit has, so far
  TimePoint engine_comes_at_ = kNever;
  bool engine_told_ = false;  // that it is to come sooner
};

}  // namespace verbena::engine
