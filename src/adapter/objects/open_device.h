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

// An opened device as the objects made from it see it: the engine that carries them out, the link it stands
// for, where its asynchronous events go. One for each context; it outlives the context's objects.
//
// Thread-safe.
class OpenDevice {
 public:
  // Errors: those of starting the engine; ENODEV when the link is gone since it was listed.
  static Result<std::unique_ptr<OpenDevice>> open(uint32_t index, uint64_t guid,
                                                  std::shared_ptr<CommandFile> command_file);

  // The C struct that the application knows it by. Set once, before any object is made.
  void set_context(ibv_context& context) { context_ = &context; }
  ibv_context* context() const { return context_; }
  uint32_t index() const { return index_; }
  uint64_t guid() const { return guid_; }

  const std::shared_ptr<engine::Engine>& engine() const { return engine_; }
  // The shard of all that is one for the process; see engine::Engine.
  engine::Shard& home() const { return engine_->home(); }
  // Where objects of this device are listed for `rdma resource`.
  engine::ShownObjects::Entry show(protocol::ObjectKind kind,
                                   const engine::ShownObjects::Values& values) const {
    return home().shown_objects().add(kind, index_, values);
  }
  // The context's own entry; set once, before any object is made.
  void show_context() { shown_ = show(protocol::ObjectKind::kContext, {}); }
  uint32_t context_number() const { return shown_.number(); }
  memory::KeyTable& keys() const { return engine_->keys(); }
  queues::EventChannel& events() const { return *events_; }
  CommandFile& command_file() const { return *command_file_; }

  // The number of a new object, which no other object made through the command file has.
  uint32_t next_handle() const { return command_file_->next_handle(); }

  // Whether an object that the application names is there and was made from this device.
  template <class Object>
  bool made(const Object* object) const {
    const provider::Context* const maker = provider::find_owner(object);
    return maker != nullptr && maker == &provider::Context::of(context_);
  }

  // We are in a child after fork(), and what is told through descriptors is told to our parent.
  bool inherited() const { return engine_->inherited(); }

  // The link was deleted: nothing new is made any more.
  bool is_gone() const { return gone_.load(std::memory_order_relaxed); }
  // False: it was so already.
  bool become_gone() { return !gone_.exchange(true); }

  // The link as it is now; nullptr when it is gone.
  std::shared_ptr<const control::Link> link() const { return engine_->link(index_); }
  // Whether packets can come and go by the wire.
  bool is_up(const control::Link& link) const { return link.is_active() && engine_->reaches_wire(); }

  // The way to an address vector's destination. EINVAL when it names no GID of ours or no destination.
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
  const std::unique_ptr<queues::EventChannel> events_;  // asynchronous ones
  const std::shared_ptr<CommandFile> command_file_;
  engine::ShownObjects::Entry shown_;
  std::atomic<bool> gone_{false};
};

}  // namespace verbena::adapter
