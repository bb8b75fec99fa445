// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_publisher.h"

#include <utility>

#include "base/log.h"
#include "control/model/link_table_file.h"

namespace verbena::agent {

LinkPublisher::LinkPublisher(LinkTable& table, Surroundings surroundings)
    : table_(table), surroundings_(std::move(surroundings)) {}

void LinkPublisher::begin() {
  begun_ = true;
  publish();
}

void LinkPublisher::publish() {
  if (!begun_) return;
  table_.keep_loopback(!loopback_viewers_.empty() || surroundings_.awaits_programs());
  if (!table_.settle() && published_) return;
  auto file = control::write_link_file(table_.snapshot());
  published_ = file.has_value();
  if (!published_) {
    log_error("the link table cannot be written: errno {}", file.error().code);
    return;
  }
  file_ = std::move(*file);
  if (table_.has_automatic_loopback()) loopback_viewers_ = sessions_;
  const auto before = std::exchange(shown_, links());
  surroundings_.on_change(before);
}

control::AdminResult<void> LinkPublisher::add(std::string_view name, std::string_view netdev) {
  auto added = table_.add_link(name, netdev);
  if (added) publish();
  return added;
}

control::AdminResult<void> LinkPublisher::remove(std::string_view name) {
  auto deleted = table_.delete_link(name);
  if (deleted) publish();
  return deleted;
}

control::AdminResult<void> LinkPublisher::rename(std::string_view name, std::string_view new_name) {
  auto renamed = table_.rename_link(name, new_name);
  if (renamed) publish();
  return renamed;
}

control::AdminResult<void> LinkPublisher::set_peers(std::string_view name, std::vector<roce::Prefix> peers) {
  auto set = table_.set_peers(name, std::move(peers));
  if (set) publish();
  return set;
}

void LinkPublisher::session_came(uint64_t session) {
  sessions_.insert(session);
  if (table_.has_automatic_loopback()) loopback_viewers_.insert(session);
}

void LinkPublisher::session_went(uint64_t session) {
  sessions_.erase(session);
  loopback_viewers_.erase(session);
  consider_loopback();
}

void LinkPublisher::consider_loopback() {
  if (table_.has_automatic_loopback()) publish();
}

}  // namespace verbena::agent
