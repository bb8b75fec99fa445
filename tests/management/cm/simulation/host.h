// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/random.h"
#include "management/cm/simulation/world.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {

// What an application does, in per cent of its chances.
struct Habits {
  unsigned delays = 20;       // says first that it needs time
  unsigned rejects = 10;      // a request, or a reply
  unsigned loses_heart = 10;  // destroys what is not established yet
  unsigned disconnects = 30;  // what is established, before the end of the first act
  Duration longest_thought = std::chrono::seconds(3);
};

// What became of a connection, as its application saw it.
struct Fate {
  bool is_active = false;
  uint32_t remote_id = 0;
  bool established = false;
  bool over = false;  // it has heard of, or has itself decided, the end
  bool destroyed = false;
};

// A host of the simulation: a manager whose handler behaves as applications do, taking its time.
class Host : public Endpoint {
 public:
  Host(uint8_t number, World& world, const Habits& habits, uint64_t seed);
  ~Host() override;

  void connect_to(const Host& other, uint32_t qpn);
  void resolve(const Host& other);
  void meet(const Host& other, uint32_t qpn);  // peer to peer
  // A new host takes up what stood on the old one, as a restarted agent does.
  void take_up(const Host& old);
  // Everything stands still that has not been decided: disconnects what is established and destroys the rest.
  void wind_up();
  // The application is killed, and its agent ends what it had.
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
      std::make_shared<int>(0);  // thoughts of a host that has crashed come to nothing
};

}  // namespace verbena::cm
