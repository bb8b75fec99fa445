// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/running_shard.h"

#include <utility>

#include "adapter/engine/secret.h"
#include "adapter/engine/status_mapping.h"
#include "base/log.h"

namespace verbena::engine {

RunningShard::RunningShard(Surroundings surroundings) : surroundings_(std::move(surroundings)) {}

Result<std::unique_ptr<RunningShard>> RunningShard::create(Surroundings surroundings) {
  std::unique_ptr<RunningShard> made(new RunningShard(std::move(surroundings)));
  if (auto taken = made->take_slot(); !taken) return tl::unexpected(taken.error());
  return made;
}

Result<void> RunningShard::take_slot() {
  auto slot = surroundings_.client.take_slot();
  if (!slot) return tl::unexpected(slot.error());
  slot_ = slot->index;
  has_slot_ = true;
  auto mapping = StatusMapping::create(slot->status_page.get());
  if (!mapping) return tl::unexpected(mapping.error());
  status_ = std::move(*mapping);
  auto ports = surroundings_.open_ports(
      {.slot = slot_, .udp_socket = std::move(slot->socket), .is_forwarded = std::move(slot->is_forwarded)},
      port_counters_in(status_->page()));
  if (!ports) return tl::unexpected(ports.error());
  if (ports->empty()) {
    no_wire_reason_ = slot->no_wire_reason.empty() ? "the agent gave no socket" : slot->no_wire_reason;
    log_warning("no wire, all ports are DOWN: {}; programs of this host are reached by memory",
                no_wire_reason_);
  }
  shard_ = std::make_unique<Shard>(slot_, std::move(*ports), status_->page(), random_secret().low);
  surroundings_.readers.add(shard_->sections());
  multicast_ = std::make_unique<MulticastGroups>(*shard_, surroundings_.groups);
  if (LocalPeers::is_wanted()) {
    local_peers_ = std::make_unique<LocalPeers>(
        *shard_, [this](uint32_t other) { return surroundings_.client.ask_for_channel(slot_, other); },
        surroundings_.board, surroundings_.guests);
    shard_->set_board(surroundings_.board);
    multicast_->bring_by(local_peers_.get());
  }
  return {};
}

Result<void> RunningShard::start_thread(int control_fd, std::function<int()> on_control) {
  auto thread = EngineThread::start(*shard_, control_fd, std::move(on_control), surroundings_.on_loss);
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

RunningShard::~RunningShard() {
  thread_.reset();
  multicast_.reset();
  local_peers_.reset();
  if (shard_ != nullptr) surroundings_.readers.remove(shard_->sections());
  shard_.reset();
  if (has_slot_) (void)surroundings_.client.return_slot(slot_);
}

void RunningShard::abandon() {
  shard_->abandon();
  if (thread_ != nullptr) thread_->abandon();
  status_->detach();
  has_slot_ = false;
}

}  // namespace verbena::engine
