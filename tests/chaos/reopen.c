// SPDX-License-Identifier: Apache-2.0
// Loads the libraries as a plugin does, uses a device, and unloads them, a thousand times. Memory, mappings,
// descriptors and threads do not grow. Every tenth time it unloads them while the device is open, as a
// program does that forgets to close it. After the next load everything is as before.
//
//     reopen LIBRARY TIMES ADDRESS    LIBRARY: libends.so, which is end.c and needs libibverbs and librdmacm
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chaos/end.h"

enum { kRounds = 8, kFirst = 100, kPagesGrowth = 128 };

struct census {
  long descriptors;
  long mappings;
  long threads;
  long pages;  // resident
};

static long entries(const char* path) {
  DIR* all = opendir(path);
  long count = 0;
  if (all == NULL) return -1;
  for (struct dirent* one = readdir(all); one != NULL; one = readdir(all)) count += one->d_name[0] != '.';
  closedir(all);
  return count;
}

static struct census take_census(void) {
  struct census taken = {.descriptors = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
  char line[512];
  FILE* file = fopen("/proc/self/maps", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) taken.mappings += strchr(line, '\n') != NULL;
  if (file != NULL) fclose(file);
  file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &taken.pages) != 1) taken.pages = -1;
  if (file != NULL) fclose(file);
  return taken;
}

static int refuse(const char* what, const char* why) {
  printf("WRONG %s: %s\n", what, why);
  return 0;
}

struct plugin {
  void* library;
  struct end* (*open)(const char*, enum end_wait);
  int (*join)(struct end*, struct end*);
  int (*both)(struct end*, struct end*, uint64_t);
  int (*close)(struct end*);
};

static int load(struct plugin* plugin, const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return refuse("dlopen", dlerror());
  plugin->library = library;
  plugin->open = (struct end * (*)(const char*, enum end_wait)) dlsym(library, "end_open");
  plugin->join = (int (*)(struct end*, struct end*))dlsym(library, "end_join_each_other");
  plugin->both = (int (*)(struct end*, struct end*, uint64_t))dlsym(library, "end_both");
  plugin->close = (int (*)(struct end*))dlsym(library, "end_close");
  return 1;
}

static int once(const char* path, const char* address, int unloads_between) {
  struct plugin plugin;
  if (!load(&plugin, path)) return 0;
  struct end* first = plugin.open(address, kEndSpins);
  struct end* second = plugin.open(address, kEndSleeps);
  if (first == NULL || second == NULL || plugin.join(first, second) != 0) return refuse("opening", "no ends");
  if (unloads_between) {
    dlclose(plugin.library);
    if (!load(&plugin, path)) return 0;
  }
  for (uint64_t i = 0; i < kRounds; ++i) {
    if (plugin.both(first, second, i) != 0) return refuse("a round", "an error");
  }
  if (plugin.close(first) != 0 || plugin.close(second) != 0) return refuse("closing", "an error");
  dlclose(plugin.library);
  return 1;
}

static int grew(const char* what, long before, long after, long most) {
  printf("%s: %ld, later %ld\n", what, before, after);
  return after > before + most;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int times = atoi(argv[2]);
  struct census before = {0};
  for (int i = 0; i < times; ++i) {
    if (!once(argv[1], argv[3], i % 10 == 9)) return 1;
    if (i == kFirst) before = take_census();
  }
  // A thread of the library may still have to close some.
  struct census after = take_census();
  for (int i = 0; after.descriptors > before.descriptors && i < 200; ++i, after = take_census())
    usleep(10000);
  const int grown = grew("descriptors", before.descriptors, after.descriptors, 0) +
                    grew("threads", before.threads, after.threads, 0) +
                    grew("mappings", before.mappings, after.mappings, 4) +
                    grew("resident pages", before.pages, after.pages, kPagesGrowth);
  puts(grown ? "something grows: WRONG" : "all is well");
  return grown ? 1 : 0;
}
