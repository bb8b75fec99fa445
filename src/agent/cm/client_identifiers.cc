// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_identifiers.h"

#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/refusals.h"

namespace verbena::agent {
namespace {

// The QP type of an identifier, as the kernel's ucma_get_qp_type() has it; 0: none.
uint8_t qp_type_of(const protocol::CmCreateRequest& request) {
  switch (request.port_space) {
    case RDMA_PS_TCP:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
    case RDMA_PS_IB:
      break;
    default:
      return 0;
  }
  for (const int type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
    if (request.qp_type == type) return request.qp_type;
  }
  return 0;
}

}  // namespace

ClientIdentifiers::~ClientIdentifiers() {
  clear(ids_.size());
}

size_t ClientIdentifiers::clear(size_t most) {
  size_t cleared = 0;
  for (; cleared < most && !ids_.empty(); ++cleared) {
    const auto next = ids_.begin();
    say_farewell(*next->second);
    discard(*next->second);
    ids_.erase(next);
  }
  return cleared;
}

// The peer of an XRC target that is destroyed is told nothing: other processes may have it open. If its
// process has died, the peer is to hear.
void ClientIdentifiers::say_farewell(CmIdentifier& id) {
  if (id.qp_type != IBV_QPT_XRC_RECV || id.connection == 0) return;
  [[maybe_unused]] const auto said = service_.manager().disconnect(id.connection, {}, MonotonicClock::now());
}

const std::shared_ptr<ConnectionTrace>& ClientIdentifiers::trace() const {
  return client_.trace();
}

CmIdentifier* ClientIdentifiers::find(uint32_t number) {
  const auto found = ids_.find(number);
  return found == ids_.end() ? nullptr : found->second.get();
}

agent_client::AdminResult<CmIdentifier*> ClientIdentifiers::make(const protocol::CmCreateRequest& request) {
  const bool is_own = request.id != 0 && (request.id & protocol::kCmAgentsNumber) == 0;
  if (!is_own || find(request.id) != nullptr) return refuse(EINVAL, "not a new number of the program's");
  if (channels_.find(request.channel) == nullptr) return refuse(ENOENT, "no such channel");
  const uint8_t qp_type = qp_type_of(request);
  if (qp_type == 0) return refuse(EINVAL, "no such port space, or not with this type of QP");
  if (!has_room()) return refuse(ENOMEM, "too many identifiers");
  auto id = std::make_unique<CmIdentifier>();
  id->client = &client_;
  id->owner = &client_;
  id->user = client_.user();
  id->number = request.id;
  id->channel = request.channel;
  id->port_space = request.port_space;
  id->qp_type = qp_type;
  id->starting_psn = static_cast<uint32_t>(service_.random().below(1u << 24));
  return &keep(std::move(id));
}

CmIdentifier& ClientIdentifiers::add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener) {
  do {  // after two billion requests the numbers begin again
    request->number = protocol::kCmAgentsNumber | next_agents_number_++;
  } while (find(request->number) != nullptr);
  request->channel = listener.channel;
  return keep(std::move(request));
}

// REQUIRES: its channel is there, and its number is new
CmIdentifier& ClientIdentifiers::keep(std::unique_ptr<CmIdentifier> id) {
  ++limits_.usage().identifiers;
  ++channels_.find(id->channel)->identifiers;
  if (id->listed_number == 0) id->listed_number = service_.next_listed_number();
  return *(ids_[id->number] = std::move(id));
}

void ClientIdentifiers::erase(CmIdentifier& id) {
  const uint32_t number = id.number;
  discard(id);
  ids_.erase(number);
}

template <class Part>
void ClientIdentifiers::part_with_those_of(uint32_t channel, Part part) {
  const EventChannel* const its_channel = channels_.find(channel);
  for (auto entry = ids_.begin(); its_channel->identifiers > 0 && entry != ids_.end();) {
    if (entry->second->channel != channel) {
      ++entry;
      continue;
    }
    part(entry->second);
    entry = ids_.erase(entry);
  }
}

void ClientIdentifiers::erase_those_of(uint32_t channel) {
  part_with_those_of(channel, [this](std::unique_ptr<CmIdentifier>& id) { discard(*id); });
}

void ClientIdentifiers::pass_those_of(uint32_t channel, CmClient& heir) {
  EventChannel* const its_channel = channels_.find(channel);
  part_with_those_of(channel, [&](std::unique_ptr<CmIdentifier>& id) {
    if (id->qp_type == IBV_QPT_XRC_RECV) return discard(*id);
    --its_channel->identifiers;
    heir.inherit(std::move(id));
  });
}

void ClientIdentifiers::inherit(std::unique_ptr<CmIdentifier> id) {
  id->client = &client_;
  id->owner = &client_;
  const uint32_t number = id->number;
  ids_[number] = std::move(id);
}

void ClientIdentifiers::discard(CmIdentifier& id) {
  if (id.resolving != 0) service_.neighbours().cancel(id.resolving);
  service_.release_port(id);
  service_.release_connection(id);
  if (id.connection != 0) {
    [[maybe_unused]] const auto destroyed = service_.manager().destroy(id.connection, MonotonicClock::now());
  }
  id.connection = 0;
  if (EventChannel* channel = channels_.find(id.channel)) --channel->identifiers;
  --limits_.usage().identifiers;
  limits_.usage().groups -= id.groups.size();
}

}  // namespace verbena::agent
