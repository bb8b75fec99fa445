// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/command_file.h"
#include "adapter/process/engine.h"
#include "adapter/queues/event_channel.h"
#include "control/model/link.h"
#include "libraries/libibverbs/provider/provider.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

// The state that all objects of one context share: the engine, the device's link, the command file and the
// channel for asynchronous events. Each context has one OpenDevice, which outlives the context's objects.
//
// Thread-safe.
class OpenDevice {
 public:
  // Opens the device with this index, and starts the process's engine if none runs. Errors: those of starting
  // the engine; ENODEV if the link was deleted meanwhile.
  static Result<std::unique_ptr<OpenDevice>> open(uint32_t index, uint64_t guid,
                                                  std::shared_ptr<CommandFile> command_file);

  // Sets the C struct of the context. Call once, before any object is created.
  void set_context(ibv_context& context) { context_ = &context; }
  ibv_context* context() const { return context_; }
  uint32_t index() const { return index_; }
  uint64_t guid() const { return guid_; }

  const std::shared_ptr<engine::Engine>& engine() const { return engine_; }
  // Returns the first shard, which has the objects that exist once per process; see engine::Engine.
  engine::Shard& home() const { return engine_->home(); }
  // Shows an object of this device in `rdma resource` until the returned Entry is destroyed.
  engine::ShownObjects::Entry show(protocol::ObjectKind kind,
                                   const engine::ShownObjects::Values& values) const {
    return home().shown_objects().add(kind, index_, values);
  }
  // Shows the context itself in `rdma resource`. Call once, before any object is created.
  void show_context() { shown_ = show(protocol::ObjectKind::kContext, {}); }
  uint32_t context_number() const { return shown_.number(); }
  memory::KeyTable& keys() const { return engine_->keys(); }
  queues::EventChannel& events() const { return *events_; }
  CommandFile& command_file() const { return *command_file_; }

  // Returns a handle for a new object, unique among all objects that are created through the command file.
  uint32_t next_handle() const { return command_file_->next_handle(); }

  // Returns whether `object`, a pointer from the application, is a live object that was created with this
  // context.
  template <class Object>
  bool made(const Object* object) const {
    const provider::Context* const maker = provider::find_owner(object);
    return maker != nullptr && maker == &provider::Context::of(context_);
  }

  // Returns whether this process is a child after fork() that inherited the device. The child shares the
  // device's descriptors with the parent, so it must not post or withdraw events.
  bool inherited() const { return engine_->inherited(); }

  // Returns whether the link was deleted. Then most calls that create or modify objects return EIO.
  bool is_gone() const { return gone_.load(std::memory_order_relaxed); }
  // Marks the link as deleted. Returns false if the link was marked before.
  bool become_gone() { return !gone_.exchange(true); }

  // Returns the newest known state of the link, or nullptr if the link was deleted.
  std::shared_ptr<const control::Link> link() const { return engine_->link(index_); }
  // Returns whether the device's port is active: `link` is active, and the agent has UDP port 4791, so the
  // engine can reach other hosts.
  bool is_up(const control::Link& link) const { return link.is_active() && engine_->reaches_wire(); }

  // Converts an address vector to a path. Returns EINVAL if the address vector has no GIDs (is_global), or
  // names another port, no GID of the device or no valid destination. Returns ENODEV if the link was deleted.
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
