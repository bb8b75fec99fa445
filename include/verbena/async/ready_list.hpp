// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <utility>

namespace verbena::detail {

// A member of a doubly linked list that unlinks itself when it is destroyed.
class list_node {
 public:
  list_node() = default;
  list_node(const list_node&) = delete;
  list_node& operator=(const list_node&) = delete;
  ~list_node() { unlink(); }

  bool is_linked() const { return next_ != this; }
  void unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = this;
  }

 private:
  template <class Node>
  friend class list;
  list_node* previous_ = this;
  list_node* next_ = this;
};

// A list of Nodes, which it does not own.
template <class Node>
class list {
 public:
  bool empty() const { return !ends_.is_linked(); }
  Node& front() { return static_cast<Node&>(*ends_.next_); }
  void push_back(Node& added) {
    list_node& node = added;
    node.unlink();
    node.previous_ = ends_.previous_;
    node.next_ = &ends_;
    node.previous_->next_ = node.next_->previous_ = &node;
  }
  // Takes all nodes of another list. REQUIRES: this list is empty
  void take(list& other) {
    while (!other.empty()) push_back(other.front());
  }

 private:
  list_node ends_;
};

// A suspended coroutine as a node of a list. The list has the coroutines that wait for the same event, or
// those that the loop will resume. The waiter lives in the awaiter, inside of the coroutine. If the coroutine
// is destroyed while it waits, the waiter leaves its list, and nobody resumes the coroutine.
class waiter : public list_node {
 public:
  void suspend(std::coroutine_handle<> coroutine) { coroutine_ = coroutine; }
  // Leaves the list, so that nobody resumes the coroutine: it is destroyed, or does not wait any more.
  void forget() {
    unlink();
    coroutine_ = {};
  }
  bool is_suspended() const { return coroutine_ != nullptr; }
  void resume() {
    unlink();
    std::exchange(coroutine_, {}).resume();
  }

 private:
  std::coroutine_handle<> coroutine_;
};

}  // namespace verbena::detail
