// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/command_file.h"
#include "adapter/process/engine.h"
#include "adapter/queues/event_channel.h"
#include "control/model/link.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "libraries/libibverbs/provider/provider.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

// An opened device as its objects see it: the engine, the link, the command file and the channel for
// asynchronous events. Each context has one, which outlives the context's objects.
//
// Thread-safe.
class OpenDevice {
 public:
  // Errors: those of starting the engine; ENODEV when the link was deleted meanwhile.
  static Result<std::unique_ptr<OpenDevice>> open(uint32_t index, uint64_t guid,
                                                  std::shared_ptr<CommandFile> command_file);

  // Sets the C struct of the context. Call once, before any object is created.
  void set_context(ibv_context& context) { context_ = &context; }
  ibv_context* context() const { return context_; }
  uint32_t index() const { return index_; }
  uint64_t guid() const { return guid_; }

  const std::shared_ptr<engine::Engine>& engine() const { return engine_; }
  // The shard for objects that exist once per process; see engine::Engine.
  engine::Shard& home() const { return engine_->home(); }
  // Lists an object of this device for `rdma resource`.
  engine::ShownObjects::Entry show(protocol::ObjectKind kind,
                                   const engine::ShownObjects::Values& values) const {
    return home().shown_objects().add(kind, index_, values);
  }
  // Lists the context itself. Call once, before any object is created.
  void show_context() { shown_ = show(protocol::ObjectKind::kContext, {}); }
  uint32_t context_number() const { return shown_.number(); }
  memory::KeyTable& keys() const { return engine_->keys(); }
  queues::EventChannel& events() const { return *events_; }
  CommandFile& command_file() const { return *command_file_; }

  // A handle for a new object, unique among all objects created through the command file.
  uint32_t next_handle() const { return command_file_->next_handle(); }

  // Whether `object`, a pointer from the application, is a live object that was created from this device.
  template <class Object>
  bool made(const Object* object) const {
    const provider::Context* const maker = provider::find_owner(object);
    return maker != nullptr && maker == &provider::Context::of(context_);
  }

  // Whether this process is a child after fork() that inherited the device. Its descriptors then notify the
  // parent.
  bool inherited() const { return engine_->inherited(); }

  // Whether the link was deleted, so that no new objects can be created.
  bool is_gone() const { return gone_.load(std::memory_order_relaxed); }
  // Marks the link as deleted. False: it was marked before.
  bool become_gone() { return !gone_.exchange(true); }

  // The present state of the link; nullptr when it is deleted.
  std::shared_ptr<const control::Link> link() const { return engine_->link(index_); }
  // Whether the port is active: the link is, and the engine reaches the wire.
  bool is_up(const control::Link& link) const { return link.is_active() && engine_->reaches_wire(); }

  // Resolves an address vector to a path. EINVAL when it names no GID of the device or no valid destination.
  Result<roce::Path> resolve(const ibv_ah_attr& attr) const;

 private:
  OpenDevice(uint32_t index, uint64_t guid, std::shared_ptr<engine::Engine> engine,
             std::unique_ptr<queues::EventChannel> events, std::shared_ptr<CommandFile> command_file)
      : index_(index),
        guid_(guid),
        engine_(std::move(engine)),
        events_(std::move(events)),
        command_file_(std::move(command_file)) {}

  ibv_context* context_ = nullptr;
  const uint32_t index_;
  const uint64_t guid_;
  const std::shared_ptr<engine::Engine> engine_;
  const std::unique_ptr<queues::EventChannel> events_;  // for asynchronous events
  const std::shared_ptr<CommandFile> command_file_;
  engine::ShownObjects::Entry shown_;
  std::atomic<bool> gone_{false};
};

}  // namespace verbena::adapter
