// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/process.h"

#include <pthread.h>

#include "base/only_one.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"

namespace verbena::rdmacm {
namespace {

constinit OnlyOne<Process> current_process;

// Takes no lock and frees nothing: other threads of the parent may have been in any code at the fork.
void after_fork_in_child() {
  Process* inherited = current_process.forget();
  if (inherited != nullptr) inherited->agent.close_in_child();
}

[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

Process& Process::current() {
  return current_process.get([] { return new Process; });
}

bool Process::is_current() const {
  return current_process.made() == this;
}

using protocol::CmEvent;
using protocol::MessageType;

namespace {

bool is_of(const CmEvent& event, Identifier& identifier) {
  const uint64_t key = Identifier::key(event.listener != 0 ? event.listener : event.id, event.generation);
  const std::lock_guard lock(identifier.mutex);
  return std::ranges::find(identifier.keys, key) != identifier.keys.end();
}

// Whether rdma_create_id(3) and the kernel know this port space.
bool is_port_space(rdma_port_space space) {
  return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IPOIB || space == RDMA_PS_IB;
}

Result<void> make_synchronous(Identifier& identifier) {
  auto channel = create_channel(identifier.process);
  if (!channel) return fail(channel.error().code);
  if (const auto moved = migrate(identifier, *channel); !moved) {
    destroy_channel(identifier.process, *channel);
    return moved;
  }
  identifier.synchronous = true;
  return {};
}

}  // namespace

Result<std::shared_ptr<Channel>> create_channel(Process& process) {
  if (const auto any = process.devices.require_any(); !any) return fail(any.error().code);
  auto channel = Channel::open(process.identifiers.draw_number());
  if (!channel) return channel;
  if (const auto opened = process.agent.open(*channel); !opened) return fail(opened.error().code);
  return channel;
}

void destroy_channel(Process& process, const std::shared_ptr<Channel>& channel) {
  process.identifiers.remove(*channel);
  channel->close();
  protocol::CmChannelRequest request{};
  request.channel = channel->number();
  // If this fails, the agent is dead and its channel closed.
  [[maybe_unused]] const auto closed = process.agent.call(MessageType::kCmCloseChannel, request);
}

Result<Identifier*> create_identifier(rdma_event_channel* channel, void* context, rdma_port_space space,
                                      ibv_qp_type type) {
  if (!is_port_space(space))
    return fail(because(
        EINVAL, "there is no port space {:#x}: take RDMA_PS_TCP or RDMA_PS_UDP, or RDMA_PS_IPOIB or _IB",
        static_cast<unsigned>(space)));
  Process& process = Process::current();
  if (const auto any = process.devices.require_any(); !any) return fail(any.error().code);
  const auto events = channel != nullptr ? process.identifiers.find(channel) : create_channel(process);
  if (!events) return fail(events.error().code);
  auto identifier = std::make_unique<Identifier>(process, *events, context, space, type);
  identifier->synchronous = channel == nullptr;
  identifier->number = process.identifiers.draw_number();
  identifier->keys.push_back(Identifier::key(identifier->number, 0));
  if (const auto created = process.agent.create(*identifier); !created) {
    if (channel == nullptr) destroy_channel(process, *events);
    return fail(created.error().code);
  }
  return identifier.release();
}

void destroy_identifier(Identifier& identifier) {
  const std::unique_ptr<Identifier> last(&identifier);
  Process& process = identifier.process;
  if (!process.is_current()) {  // in a child: the parent's identifier at the agent stays
    identifier.device.reset();
    return;
  }
  process.identifiers.begin_removal(identifier);
  // If this fails, the agent is dead and the identifier with it.
  const auto destroyed = process.agent.call<protocol::CmDestroyReply>(identifier, MessageType::kCmDestroyId,
                                                                      protocol::CmIdRequest{});
  // Removed only now: a thread that found the channel readable still gets the event, as with the kernel.
  // Otherwise it would wait for another event forever (rping of rdma-core 60).
  process.identifiers.remove(identifier);
  // Usually no event is left, and the channel need not be searched, which takes out all events.
  const bool has_all = destroyed && !identifier.events->has_own_events() &&
                       identifier.has_all_events(destroyed->events, process.agent.generation());
  if (!has_all) {
    const auto undelivered =
        identifier.events->take([&](const CmEvent& event) { return is_of(event, identifier); });
    for (const CmEvent& event : undelivered) abandon_request(process, event);
  }
  if (identifier.event != nullptr) acknowledge(Event::of(identifier.event));
  identifier.wait_until_acknowledged("rdma_destroy_id");
  if (identifier.synchronous) destroy_channel(process, identifier.events);
}

Result<void> migrate(Identifier& identifier, std::shared_ptr<Channel> channel) {
  protocol::CmMigrateRequest request{};
  request.channel = channel->number();
  const auto exchange = [&](std::shared_ptr<Channel> other) {
    const std::lock_guard lock(identifier.mutex);
    return std::exchange(identifier.events, std::move(other));
  };
  // Before the request to the agent: an agent that is restarted meanwhile must learn the new channel.
  const std::shared_ptr<Channel> before = exchange(channel);
  const auto moved = identifier.process.agent.call(identifier, MessageType::kCmMigrateId, request);
  if (!moved) {
    exchange(before);
    return fail(moved.error().code);
  }
  for (const CmEvent& event : before->take([&](const CmEvent& each) { return is_of(each, identifier); })) {
    identifier.process.agent.post(*channel, event);
  }
  identifier.channel = channel.get();
  return {};
}

Result<Identifier*> adopt_request(Identifier& listener, const CmEvent& message) {
  Process& process = listener.process;
  auto request =
      std::make_unique<Identifier>(process, listener.events, listener.context, listener.ps, listener.qp_type);
  request->number = message.id;
  request->numbered_by = message.generation;
  request->keys.push_back(Identifier::key(message.id, message.generation));
  request->state = State::kRequested;
  request->connection = message.connection;
  request->peers = message.parameters;
  if (const auto set = set_path(*request, message.route); !set) return fail(set.error().code);
  if (const auto set = set_path_record(*request); !set) return fail(set.error().code);
  process.identifiers.add(*request);
  if (listener.synchronous) {
    if (const auto made = make_synchronous(*request); !made) {
      process.identifiers.remove(*request);
      return fail(made.error().code);
    }
  }
  return request.release();
}

void abandon_request(Process& process, const CmEvent& message) {
  if (message.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  protocol::CmIdRequest request{};
  request.id = message.id;
  [[maybe_unused]] const auto destroyed =
      process.agent.call<protocol::CmDestroyReply>(MessageType::kCmDestroyId, request, message.generation);
}

}  // namespace verbena::rdmacm

namespace {

using verbena::Result;
using namespace verbena::rdmacm;

ibv_qp_type type_of(rdma_port_space space) {
  return space == RDMA_PS_IPOIB || space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
}

}  // namespace

VERBENA_ABI rdma_event_channel* rdma_create_event_channel() {
  return answer_pointer([] {
    return create_channel(Process::current()).map([](const auto& channel) -> rdma_event_channel* {
      return channel.get();
    });
  });
}

VERBENA_ABI void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (channel == nullptr) return;
  answer([&] {
    Process& process = Process::current();
    const auto found = process.identifiers.find(channel);
    if (found) destroy_channel(process, *found);
    return error_of(found);
  });
}

VERBENA_ABI int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                               rdma_port_space space) {
  return answer([&] {
    if (id == nullptr) return because(EINVAL, "id is null");
    auto created = create_identifier(channel, context, space, type_of(space));
    if (created) *id = *created;
    return error_of(created);
  });
}

VERBENA_ABI int rdma_destroy_id(rdma_cm_id* id) {
  return answer([&] {
    if (id == nullptr) return because(EINVAL, "id is null");
    if (!Identifier::is_one(id)) return because(EINVAL, kNoIdentifier, verbena::ptr(id));
    destroy_identifier(Identifier::of(id));
    return 0;
  });
}

VERBENA_ABI int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return answer_for(id, [&](Identifier& identifier) {
    const bool was_synchronous = identifier.synchronous;
    if (was_synchronous && channel == nullptr)
      return because(EINVAL, "channel is null, and id is synchronous already");
    const std::shared_ptr<Channel> before = identifier.events;
    const auto moved = channel == nullptr
                           ? make_synchronous(identifier)
                           : identifier.process.identifiers.find(channel).and_then(
                                 [&](const auto& found) { return migrate(identifier, found); });
    if (!moved) return moved.error().code;
    identifier.synchronous = channel == nullptr;
    if (was_synchronous) {
      if (identifier.event != nullptr) acknowledge(Event::of(identifier.event));
      identifier.event = nullptr;
      destroy_channel(identifier.process, before);
    }
    identifier.wait_until_acknowledged("rdma_migrate_id");
    return 0;
  });
}
