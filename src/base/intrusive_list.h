// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena {

// A member of an object by which the object can be in one list at a time. The destructor unlinks the object.
class ListHook {
 public:
  ListHook() = default;
  ListHook(const ListHook&) = delete;
  ListHook& operator=(const ListHook&) = delete;
  ~ListHook() { unlink(); }

  bool is_linked() const { return next_ != nullptr; }
  void unlink() {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    next_ = prev_ = nullptr;
  }

 private:
  template <class T, ListHook T::*Hook>
  friend class IntrusiveList;
  ListHook* next_ = nullptr;
  ListHook* prev_ = nullptr;
};

// A doubly linked list of objects, linked through the ListHook that `Hook` names in each. Owns nothing,
// allocates nothing, never throws. The destructor unlinks all elements. Not thread-safe.
template <class T, ListHook T::*Hook>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.prev_ = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() {
    while (!empty()) pop_front();
    head_.next_ = head_.prev_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }

  // Appends `item`. REQUIRES: item is in no list
  void push_back(T& item) {
    ListHook& hook = item.*Hook;
    hook.prev_ = head_.prev_;
    hook.next_ = &head_;
    head_.prev_->next_ = &hook;
    head_.prev_ = &hook;
  }

  // Inserts into a list sorted by `less`, after elements that are not greater. Searches from the end.
  // REQUIRES: item is in no list
  template <class Less>
  void insert_sorted(T& item, Less less) {
    ListHook* after = head_.prev_;
    while (after != &head_ && less(item, *owner(after))) after = after->prev_;
    ListHook& hook = item.*Hook;
    hook.prev_ = after;
    hook.next_ = after->next_;
    after->next_->prev_ = &hook;
    after->next_ = &hook;
  }

  // Returns the first element. REQUIRES: !empty()
  T& front() { return *owner(head_.next_); }

  // Removes and returns the first element. REQUIRES: !empty()
  T& pop_front() {
    T& item = front();
    (item.*Hook).unlink();
    return item;
  }

  // Forward iterator. REQUIRES: the current element is not unlinked before ++
  class Iterator {
   public:
    explicit Iterator(ListHook* at) : at_(at) {}
    T& operator*() const { return *owner(at_); }
    Iterator& operator++() {
      at_ = at_->next_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    ListHook* at_;
  };
  Iterator begin() { return Iterator(head_.next_); }
  Iterator end() { return Iterator(&head_); }

  // Moves all elements of `other` to the end of this list, in order.
  void splice_back(IntrusiveList& other) {
    if (other.empty()) return;
    other.head_.next_->prev_ = head_.prev_;
    head_.prev_->next_ = other.head_.next_;
    other.head_.prev_->next_ = &head_;
    head_.prev_ = other.head_.prev_;
    other.head_.next_ = other.head_.prev_ = &other.head_;
  }

 private:
  static T* owner(ListHook* hook) {
    alignas(T) static char space[sizeof(T)];
    auto* sample = reinterpret_cast<T*>(space);
    const auto offset = reinterpret_cast<char*>(&(sample->*Hook)) - space;
    return reinterpret_cast<T*>(reinterpret_cast<char*>(hook) - offset);
  }

  ListHook head_;
};

}  // namespace verbena
