// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/letters.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include <getopt.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

Option decimal(char letter, int& value, int least, int most) {
  return {letter, nullptr, true, [=, &value](const char* word) {
            int read = 0;
            const char* end = word + std::strlen(word);
            const auto [rest, error] = std::from_chars(word, end, read);
            if (error != std::errc() || rest != end || read < least || read > most) {
              complain(verbena::format("-{}: '{}' is not a number from {} to {}", letter, word, least, most));
              return Next::kWrong;
            }
            value = read;
            return Next::kGoOn;
          }};
}

Option taken(char letter, std::function<void(const char*)> take) {
  return {letter, nullptr, true, [take = std::move(take)](const char* word) {
            take(word);
            return Next::kGoOn;
          }};
}

Option octet(char letter, std::function<void(unsigned char)> take) {
  return number_to(letter, nullptr, 0, 255,
                   [take = std::move(take)](long long value) { take(static_cast<unsigned char>(value)); });
}

Letters parse_letters(int argc, char** argv, const std::vector<Option>& options, bool quiet) {
  Letters letters;
  std::vector<char*> words;
  bool before_operands = true;
  for (char** word = argv; word != argv + argc; ++word) {
    const std::string_view text = *word;
    if (before_operands && text == "--help") return {Next::kStop, false};
    if (before_operands && text == "--json") {
      letters.json = true;
      continue;
    }
    before_operands = before_operands && text != "--";
    words.push_back(*word);
  }
  std::string known;
  for (const Option& each : options) known.append(1, each.letter).append(each.has_value ? ":" : "");
  const int count = static_cast<int>(words.size());
  words.push_back(nullptr);
  opterr = quiet ? 0 : 1;
  optind = 0;  // makes getopt() start over
  while (letters.next == Next::kGoOn) {
    const int found = getopt(count, words.data(), known.c_str());
    if (found == -1) break;
    const auto option = std::find_if(options.begin(), options.end(),
                                     [found](const Option& each) { return each.letter == found; });
    letters.next = option == options.end() ? Next::kWrong : option->take(optarg);
  }
  return letters;
}

}  // namespace verbena::rdma_core
