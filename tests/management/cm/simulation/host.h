// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/random.h"
#include "management/cm/simulation/world.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {

// The behaviour of an application, as probabilities in per cent.
struct Habits {
  unsigned delays = 20;       // first reports that it needs time (MRA)
  unsigned rejects = 10;      // rejects a request or a reply
  unsigned loses_heart = 10;  // destroys a connection before it is established
  unsigned disconnects = 30;  // disconnects before the end of the first phase
  Duration longest_thought = std::chrono::seconds(3);
};

// The state of a connection as its application knows it.
struct Fate {
  bool is_active = false;
  uint32_t remote_id = 0;
  bool established = false;
  bool over = false;  // the application knows of the end, or decided it
  bool destroyed = false;
};

// A simulated host: a connection manager with an application that reacts to events randomly and after delays.
class Host : public Endpoint {
 public:
  Host(uint8_t number, World& world, const Habits& habits, uint64_t seed);
  ~Host() override;

  void connect_to(const Host& other, uint32_t qpn);
  void resolve(const Host& other);
  // Restores the established connections of `old`, as a restarted agent does.
  void take_up(const Host& old);
  // Disconnects all established connections and destroys all others, so that everything comes to an end.
  void wind_up();
  // Ends all of the application's connections, as the agent does after the application is killed.
  void kill_application();

  const std::map<LocalId, Fate>& fates() const { return fates_; }
  bool is_standing(LocalId id) const;

 protected:
  void react(const Event& event) override;

 private:
  void think(LocalId id, std::function<void()> then);
  bool chance(unsigned per_cent) { return random_.below(100) < per_cent; }
  void decide_on_request(LocalId id);
  void answer_request(LocalId id);
  void decide_on_reply(LocalId id);
  void answer_reply(LocalId id);
  void stand(LocalId id);
  void end(LocalId id);
  void destroy(LocalId id);

  World& world_;
  Habits habits_;
  Random random_;
  uint32_t next_qpn_ = 1000;
  std::map<LocalId, Fate> fates_;
  std::shared_ptr<int> alive_ =
      std::make_shared<int>(0);  // reset when the host crashes, which cancels delayed reactions
};

}  // namespace verbena::cm
