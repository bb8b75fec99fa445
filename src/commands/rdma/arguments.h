// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::commands::rdma {

// Whether `word` abbreviates `whole`, that is, is a prefix of it. As in iproute2, callers take the first
// command that an ambiguous word abbreviates.
inline bool abbreviates(std::string_view word, std::string_view whole) {
  return whole.starts_with(word);
}

// The words of a command that remain to be parsed. Parsing removes words from the front.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : words_(std::move(words)) {}

  bool empty() const { return at_ == words_.size(); }
  size_t size() const { return words_.size() - at_; }
  // Returns the next word without removing it. REQUIRES: not empty()
  const std::string& word() const { return words_[at_]; }
  const std::string& operator[](size_t index) const { return words_[at_ + index]; }
  void drop() { at_ += empty() ? 0 : 1; }
  std::string take() { return words_[at_++]; }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};

}  // namespace verbena::commands::rdma
