// SPDX-License-Identifier: Apache-2.0
#include "base/intrusive_list.h"

#include <vector>

#include <gtest/gtest.h>

namespace verbena {
namespace {

struct Item {
  explicit Item(int number_of) : number(number_of) {}
  int number;
  ListHook hook;
};
using List = IntrusiveList<Item, &Item::hook>;

std::vector<int> numbers_in(List& list) {
  std::vector<int> numbers;
  for (const Item& item : list) numbers.push_back(item.number);
  return numbers;
}

bool is_less(const Item& a, const Item& b) {
  return a.number < b.number;
}

TEST(IntrusiveList, KeepsTheOrderInWhichItemsWereAdded) {
  Item one(1), two(2), three(3);
  List list;
  EXPECT_TRUE(list.empty());
  for (Item* item : {&one, &two, &three}) list.push_back(*item);
  EXPECT_EQ(numbers_in(list), (std::vector{1, 2, 3}));
  EXPECT_EQ(&list.pop_front(), &one);
  EXPECT_FALSE(one.hook.is_linked());
  EXPECT_EQ(&list.front(), &two);
  EXPECT_EQ(numbers_in(list), (std::vector{2, 3}));
}

TEST(IntrusiveList, LetsAnItemGoFromTheMiddle) {
  Item one(1), two(2), three(3);
  List list;
  for (Item* item : {&one, &two, &three}) list.push_back(*item);
  two.hook.unlink();
  two.hook.unlink();  // is in no list: no effect
  EXPECT_FALSE(two.hook.is_linked());
  EXPECT_EQ(numbers_in(list), (std::vector{1, 3}));
}

TEST(IntrusiveList, ForgetsAnItemThatIsDestroyed) {
  Item one(1);
  List list;
  list.push_back(one);
  {
    Item two(2);
    list.push_back(two);
    EXPECT_EQ(numbers_in(list), (std::vector{1, 2}));
  }
  EXPECT_EQ(numbers_in(list), (std::vector{1}));
}

TEST(IntrusiveList, LeavesItsItemsUnlinkedWhenItIsDestroyed) {
  Item one(1), two(2);
  {
    List list;
    list.push_back(one);
    list.push_back(two);
  }
  EXPECT_FALSE(one.hook.is_linked());
  EXPECT_FALSE(two.hook.is_linked());
}

TEST(IntrusiveList, InsertsBehindThoseThatAreNotGreater) {
  Item one(1), two(2), also_two(2), three(3);
  List list;
  for (Item* item : {&three, &one, &two, &also_two}) list.insert_sorted(*item, is_less);
  EXPECT_EQ(numbers_in(list), (std::vector{1, 2, 2, 3}));
  list.pop_front();
  EXPECT_EQ(&list.pop_front(), &two);  // among equal elements the first stays first
  EXPECT_EQ(&list.pop_front(), &also_two);
}

TEST(IntrusiveList, TakesOverAllOfAnother) {
  Item one(1), two(2), three(3);
  List list, other;
  list.push_back(one);
  other.push_back(two);
  other.push_back(three);
  list.splice_back(other);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(numbers_in(list), (std::vector{1, 2, 3}));
  list.splice_back(other);  // an empty list
  EXPECT_EQ(numbers_in(list), (std::vector{1, 2, 3}));
  three.hook.unlink();
  EXPECT_EQ(numbers_in(list), (std::vector{1, 2}));
}

}  // namespace
}  // namespace verbena
