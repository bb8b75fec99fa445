// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/ports.h"

#include <utility>

#include "base/failed_call.h"

namespace verbena::engine {

using transport::Route;
using transport::Traits;

Ports::Ports(net::PortList ports) : ways_(ports.size()) {
  for (uint32_t i = 0; i < ways_.size(); ++i) {
    Way& way = ways_[i];
    way.port = std::move(ports[i]);
    way.route = {.traits = way.port->traits(), .sink = way.port.get(), .port = i};
    must_be_asked_ |= way.route.traits.progress == Traits::Progress::kAsked;
  }
  if (!ways_.empty()) counters_ = &ways_.front().port->counters();
}

Ports::~Ports() = default;

const Route& Ports::find(const roce::Path& path, roce::Qpn destination) {
  if (local_ == nullptr) return find_port(path);
  if (destination == roce::kMulticastQpn) return local_->find_group(path, find_port(path));
  const Route* const route = local_->find(path, destination);
  return route != nullptr ? *route : find_port(path);
}

const Route& Ports::find_known(const roce::Path& path, roce::Qpn destination) {
  const Route* const route = local_ != nullptr ? local_->find_open(path, destination) : nullptr;
  return route != nullptr ? *route : find_port(path);
}

const Route& Ports::find_port(const roce::Path& path) const {
  for (const Way& way : ways_) {
    if (way.port->leads_to(path)) return way.route;
  }
  return transport::no_route();
}

const net::Port* Ports::port_of(const roce::Path& path) const {
  const transport::Route& route = find_port(path);
  return route.port < ways_.size() ? ways_[route.port].port.get() : nullptr;
}

Result<void> Ports::check(const roce::Path& path, Duration patience) const {
  const net::Port* const port = port_of(path);
  return port != nullptr ? port->check(path, patience) : Result<void>();
}

std::string Ports::obstacle(const roce::Path& path, roce::Qpn destination) {
  std::string known = local_ != nullptr ? local_->obstacle(path, destination) : std::string();
  if (!known.empty()) return known;
  if (ways_.empty()) return "this process has no wire: UDP port 4791 is not available to the agent";
  const auto checked = check(path, Duration(0));  // the shard's lock is held
  return checked ? known : std::string(reason_of(checked.error().code));
}

uint32_t Ports::receive(net::PacketHandler& handler, uint32_t budget) {
  uint32_t received = 0;
  for (Way& way : ways_) {
    counters_ = &way.port->counters();
    received += way.port->receive(handler, budget);
  }
  if (!ways_.empty()) counters_ = &ways_.front().port->counters();
  return received;
}

void Ports::want_ip_details(bool wanted) {
  if (ip_details_ == wanted) return;
  ip_details_ = wanted;
  for (Way& way : ways_) way.port->want_ip_details(wanted);
}

void Ports::note_full(const transport::QueuePair& qp) {
  any_full_ = true;
  if (!goes_by_memory(qp)) {
    ways_[qp.route().port].full = true;
  } else if (local_ != nullptr) {
    local_->note_full(qp.route().port);
  }
}

void Ports::wait(transport::QueuePair& qp) {
  if (!goes_by_memory(qp)) {
    ways_[qp.route().port].waiting.push_back(qp);
  } else if (local_ != nullptr) {
    local_->wait(qp);
  }
}

void Ports::flush(ReadyList& ready) {
  any_full_ = local_ != nullptr && local_->flush(ready);
  for (Way& way : ways_) {
    way.full = !way.port->flush();
    any_full_ |= way.full;
    if (!way.full) ready.splice_back(way.waiting);
  }
}

void Ports::push() {
  push_memory();
  for (Way& way : ways_) way.port->flush();
}

int Ports::send_fd() const {
  int found = -1;
  for (const Way& way : ways_) {
    if (!way.full) continue;
    if (found >= 0) return -1;  // only one is waited for
    found = way.port->send_fd();
    if (found < 0) return -1;
  }
  return found;
}

}  // namespace verbena::engine
