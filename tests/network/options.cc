// SPDX-License-Identifier: Apache-2.0
#include "network/options.h"

namespace verbena::network {
namespace {

using net::LinkSettings;

struct RateOption {
  const char* name;
  uint64_t LinkSettings::*setting;
  const char* text;
};
constexpr RateOption kRates[] = {
    {"--rate", &LinkSettings::bytes_per_second,
     "Rate in megabits per second; without it there is no limit and no queue"},
    {"--other-rate", &LinkSettings::other_bytes_per_second,
     "With --rate-turn: the rate in every other turn. 0, the default: no packet passes then"},
};

struct BytesOption {
  const char* name;
  uint64_t LinkSettings::*setting;
  const char* text;
};
constexpr BytesOption kSizes[] = {
    {"--queue", &LinkSettings::queue_bytes,
     "Size of the queue in front of --rate; packets that do not fit are lost"},
    {"--mark-above", &LinkSettings::mark_above_bytes,
     "Marks ECN-capable packets that find more bytes than this in the queue"},
};

struct TimeOption {
  const char* name;
  Duration LinkSettings::*setting;
  const char* text;
};
constexpr TimeOption kTimes[] = {
    {"--rate-turn", &LinkSettings::rate_turn, "Switches between --rate and --other-rate after this time"},
    {"--delay", &LinkSettings::delay, "One-way delay"},
    {"--jitter", &LinkSettings::jitter, "Maximum random delay in addition; packets keep their order"},
    {"--jitter-every", &LinkSettings::jitter_every,
     "Time for which a random value of --jitter holds; 0, the default: one packet"},
    {"--detour", &LinkSettings::detour, "Maximum additional delay of --late packets and duplicates"},
    {"--burst-every", &LinkSettings::burst_every, "Interval between bursts of losses"},
    {"--burst-length", &LinkSettings::burst_length, "Length of a burst"},
};

struct ChanceOption {
  const char* name;
  uint32_t LinkSettings::*setting;
  const char* text;
};
constexpr ChanceOption kChances[] = {
    {"--loss", &LinkSettings::loss, "Packet is lost"},
    {"--duplicate", &LinkSettings::duplication, "Packet arrives twice"},
    {"--corrupt", &LinkSettings::corruption,
     "One bit of the IP packet is flipped, after checksums were computed, so that a checksum that covers it "
     "detects it"},
    {"--early", &LinkSettings::early, "Packet arrives without the delay, before all that are in flight"},
    {"--late", &LinkSettings::late, "Packet arrives late, so that others overtake it"},
    {"--burst-loss", &LinkSettings::burst_loss, "Packet is lost during a burst"},
    {"--bad-begins", &LinkSettings::bad_begins,
     "Correlated losses (Gilbert model): a bad period begins with this packet"},
    {"--bad-ends", &LinkSettings::bad_ends, "The bad period ends with this packet"},
    {"--bad-loss", &LinkSettings::bad_loss, "Packet is lost during a bad period; 1 by default"},
};

constexpr double kBytesOfMegabit = 125'000;
constexpr double kNanosecondsOfMillisecond = 1e6;
constexpr double kMillion = 1e6;

template <class Value>
void add(CLI::App& app, const char* name, Value& value, double unit, const char* text,
         const CLI::Validator& valid, const char* what) {
  app.add_option_function<double>(
         name, [&value, unit](double given) { value = Value(static_cast<int64_t>(given * unit + 0.5)); },
         text)
      ->check(valid)
      ->type_name(what);
}

}  // namespace

LinkSettings Options::link_from(int device) const {
  if (device == 0 || !one_way) return link;
  LinkSettings back = link;
  const LinkSettings harmless;
  for (const ChanceOption& chance : kChances) back.*chance.setting = harmless.*chance.setting;
  back.jitter = harmless.jitter;
  back.mark_above_bytes = harmless.mark_above_bytes;
  return back;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("FIRST", options.devices[0], "Name of a device to be made")->required();
  app.add_option("SECOND", options.devices[1], "Name of the other one")->required();
  LinkSettings& link = options.link;
  const CLI::Range not_negative(0.0, 1e12);
  const CLI::Range chance(0.0, 1.0);
  for (const RateOption& rate : kRates) {
    add(app, rate.name, link.*rate.setting, kBytesOfMegabit, rate.text, not_negative, "MBIT/S");
  }
  for (const BytesOption& size : kSizes) {
    app.add_option(size.name, link.*size.setting, size.text)->type_name("BYTES");
  }
  for (const TimeOption& time : kTimes) {
    add(app, time.name, link.*time.setting, kNanosecondsOfMillisecond, time.text, not_negative, "MS");
  }
  for (const ChanceOption& share : kChances) {
    add(app, share.name, link.*share.setting, kMillion, share.text, chance, "SHARE");
  }
  app.add_option("--mtu", link.mtu, "Drops larger IP packets and notifies the sender, like a router")
      ->type_name("BYTES");
  app.add_flag_callback(
      "--silent-mtu", [&options] { options.direction.answer_too_large = false; },
      "Does not notify the sender about --mtu");
  app.add_flag("--one-way", options.one_way,
               "Applies only --rate, --queue, --delay and --mtu to packets from SECOND to FIRST");
  app.add_option("--seed", options.seed, "Seed of the random numbers");
  add(app, "--join", options.direction.join, kNanosecondsOfMillisecond / 1000,
      "Segments of one frame that arrive within this time are passed on as one; 40 by default", not_negative,
      "US");
}

}  // namespace verbena::network
