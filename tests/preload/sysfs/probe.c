// SPDX-License-Identifier: Apache-2.0
// facade_probe FUNCTION ARGUMENT...: calls a function of the C library and prints its result: "ok ..." or the
// name of the error.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char* path;    // the first argument
static const char* second;  // the second argument, if any

static int say(int ok) {
  if (ok) {
    puts("ok");
    return 0;
  }
  puts(strerrorname_np(errno));
  return 1;
}

static int say_kind(int result, const struct stat* status) {
  if (result != 0) return say(0);
  printf("ok %s\n", S_ISCHR(status->st_mode)   ? "character"
                    : S_ISDIR(status->st_mode) ? "directory"
                    : S_ISLNK(status->st_mode) ? "link"
                                               : "file");
  return 0;
}

static int say_contents(int fd) {
  if (fd < 0) return say(0);
  char text[100];
  const ssize_t size = read(fd, text, sizeof text - 1);
  text[size < 0 ? 0 : size] = '\0';
  printf("ok %s\n", text);
  return 0;
}

static int say_stream(FILE* stream) {
  return say_contents(stream == NULL ? -1 : fileno(stream));
}

static int say_text(const char* text) {
  if (text == NULL) return say(0);
  printf("ok %s\n", text);
  return 0;
}

// Looks up functions that today's headers do not declare, or rename.
static void* function(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == NULL) exit(77);
  return found;
}
typedef int (*OldStat)(int, const char*, struct stat*);
typedef int (*OldStatAt)(int, int, const char*, struct stat*, int);
typedef int (*CheckedOpen)(const char*, int);
typedef int (*CheckedOpenAt)(int, const char*, int);

static struct stat status;
static char buffer[PATH_MAX];
#define KIND(name, ...)                    \
  static int try_##name(void) {            \
    return say_kind(__VA_ARGS__, &status); \
  }
#define CONTENTS(name, ...)           \
  static int try_##name(void) {       \
    return say_contents(__VA_ARGS__); \
  }
#define STREAM(name, ...)           \
  static int try_##name(void) {     \
    return say_stream(__VA_ARGS__); \
  }
#define SUCCESS(name, ...)      \
  static int try_##name(void) { \
    return say(__VA_ARGS__);    \
  }

KIND(stat, stat(path, &status))
KIND(lstat, lstat(path, &status))
KIND(fstatat, fstatat(AT_FDCWD, path, &status, 0))
KIND(fstatat_nofollow, fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW))
KIND(stat64, stat64(path, (struct stat64*)&status))
KIND(lstat64, lstat64(path, (struct stat64*)&status))
KIND(fstatat64, fstatat64(AT_FDCWD, path, (struct stat64*)&status, 0))
KIND(xstat, ((OldStat)function("__xstat"))(1, path, &status))
KIND(xstat64, ((OldStat)function("__xstat64"))(1, path, &status))
KIND(lxstat, ((OldStat)function("__lxstat"))(1, path, &status))
KIND(lxstat64, ((OldStat)function("__lxstat64"))(1, path, &status))
KIND(fxstatat, ((OldStatAt)function("__fxstatat"))(1, AT_FDCWD, path, &status, 0))
KIND(fxstatat64, ((OldStatAt)function("__fxstatat64"))(1, AT_FDCWD, path, &status, 0))
SUCCESS(statx, statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, (struct statx*)buffer) == 0)
SUCCESS(access, access(path, R_OK) == 0)
SUCCESS(access_write, access(path, R_OK | W_OK) == 0)
SUCCESS(eaccess, eaccess(path, R_OK) == 0)
SUCCESS(euidaccess, euidaccess(path, R_OK) == 0)
SUCCESS(faccessat, faccessat(AT_FDCWD, path, R_OK, 0) == 0)
SUCCESS(statfs, statfs(path, (struct statfs*)buffer) == 0)
SUCCESS(statfs64, statfs64(path, (struct statfs64*)buffer) == 0)
SUCCESS(statvfs, statvfs(path, (struct statvfs*)buffer) == 0)
SUCCESS(statvfs64, statvfs64(path, (struct statvfs64*)buffer) == 0)
SUCCESS(listxattr, listxattr(path, buffer, sizeof buffer) >= 0)
SUCCESS(llistxattr, llistxattr(path, buffer, sizeof buffer) >= 0)
SUCCESS(getxattr, getxattr(path, "user.none", buffer, sizeof buffer) >= 0)
SUCCESS(lgetxattr, lgetxattr(path, "user.none", buffer, sizeof buffer) >= 0)
SUCCESS(inotify_add_watch, inotify_add_watch(inotify_init(), path, IN_CREATE) >= 0)

CONTENTS(open, open(path, O_RDONLY))
CONTENTS(open64, open64(path, O_RDONLY))
CONTENTS(openat, openat(AT_FDCWD, path, O_RDONLY))
CONTENTS(openat64, openat64(AT_FDCWD, path, O_RDONLY))
CONTENTS(open_checked, ((CheckedOpen)function("__open_2"))(path, O_RDONLY))
CONTENTS(open64_checked, ((CheckedOpen)function("__open64_2"))(path, O_RDONLY))
CONTENTS(openat_checked, ((CheckedOpenAt)function("__openat_2"))(AT_FDCWD, path, O_RDONLY))
CONTENTS(openat64_checked, ((CheckedOpenAt)function("__openat64_2"))(AT_FDCWD, path, O_RDONLY))
STREAM(fopen, fopen(path, "r"))
STREAM(fopen64, fopen64(path, "r"))
STREAM(freopen, freopen(path, "r", stdin))
STREAM(freopen64, freopen64(path, "r", stdin))
SUCCESS(creat, creat(path, 0600) >= 0)
SUCCESS(creat64, creat64(path, 0600) >= 0)

// The mode argument must reach the kernel.
static int try_create(void) {
  umask(0);
  const int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0641);
  if (fd < 0 || fstat(fd, &status) != 0) return say(0);
  printf("ok %o\n", status.st_mode & 0777);
  return 0;
}

static int say_link(ssize_t size) {
  if (size < 0) return say(0);
  buffer[size] = '\0';
  return say_text(buffer);
}
static int try_readlink(void) {
  return say_link(readlink(path, buffer, sizeof buffer - 1));
}
static int try_readlinkat(void) {
  return say_link(readlinkat(AT_FDCWD, path, buffer, sizeof buffer - 1));
}
static int try_readlink_checked(void) {
  typedef ssize_t (*Checked)(const char*, char*, size_t, size_t);
  return say_link(((Checked)function("__readlink_chk"))(path, buffer, sizeof buffer - 1, sizeof buffer));
}
static int try_realpath(void) {
  return say_text(realpath(path, NULL));
}
static int try_realpath_into(void) {
  return say_text(realpath(path, buffer));
}
static int try_realpath_checked(void) {
  typedef char* (*Checked)(const char*, char*, size_t);
  return say_text(((Checked)function("__realpath_chk"))(path, buffer, sizeof buffer));
}
static int try_canonicalize(void) {
  return say_text(canonicalize_file_name(path));
}

static int compare(const void* a, const void* b) {
  return strcmp(*(char* const*)a, *(char* const*)b);
}

// Collected names, sorted, without "." and "..".
static char* names[100];
static size_t name_count;
static void add_name(const char* name) {
  if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) names[name_count++] = strdup(name);
}
static int say_names(void) {
  qsort(names, name_count, sizeof names[0], compare);
  printf("ok");
  for (size_t i = 0; i < name_count; ++i) printf(" %s", names[i]);
  puts("");
  return 0;
}

static int list(DIR* directory) {
  if (directory == NULL) return say(0);
  errno = 0;
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) add_name(entry->d_name);
  if (errno != 0) return say(0);
  closedir(directory);
  return say_names();
}
static int try_opendir(void) {
  return list(opendir(path));
}
static int try_fdopendir(void) {
  return list(fdopendir(open(path, O_RDONLY | O_DIRECTORY)));
}
static int try_rewinddir(void) {
  DIR* directory = opendir(path);
  if (directory == NULL) return say(0);
  while (readdir64(directory) != NULL) {
  }
  rewinddir(directory);
  return list(directory);
}
static int try_readdir_r(void) {
  DIR* directory = opendir(path);
  if (directory == NULL) return say(0);
  struct dirent entry;
  struct dirent* result;
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  while (readdir_r(directory, &entry, &result) == 0 && result != NULL) add_name(entry.d_name);
  closedir(directory);
  return say_names();
}
// Opens more directories at once than the preload has room for.
static int try_many(void) {
  DIR* held[40];
  for (int i = 0; i < 40; ++i) held[i] = opendir(path);
  for (int i = 0; i < 40; ++i) closedir(held[i]);
  return try_opendir();
}
static struct dirent** found;
static int say_found(int count) {
  if (count < 0) return say(0);
  printf("ok");  // in the order received
  for (int i = 0; i < count; ++i) {
    if (found[i]->d_name[0] != '.') printf(" %s", found[i]->d_name);
    free(found[i]);
  }
  free(found);
  puts("");
  return 0;
}
static int try_scandir(void) {
  return say_found(scandir(path, &found, NULL, alphasort));
}
static int try_scandir64(void) {
  return say_found(scandir64(path, (struct dirent64***)&found, NULL, alphasort64));
}
static int try_scandirat(void) {
  const int at = open(path, O_RDONLY | O_DIRECTORY);
  return say_found(scandirat(at, second, &found, NULL, alphasort));
}
static int try_glob(void) {
  glob_t matches = {0};
  const int result = glob(path, 0, NULL, &matches);
  if (result == GLOB_NOMATCH) errno = ENOENT;
  if (result != 0) return say(0);
  for (size_t i = 0; i < matches.gl_pathc; ++i) add_name(matches.gl_pathv[i]);
  globfree(&matches);
  return say_names();
}

// Paths relative to a directory: the working directory, or a descriptor.
static int try_in(void) {
  if (chdir(path) != 0) return say(0);
  return say_kind(stat(second, &status), &status);
}
static int try_at(void) {
  const int at = open(path, O_RDONLY | O_DIRECTORY);
  return say_kind(fstatat(at, second, &status, 0), &status);
}
static int try_open_at(void) {
  const int at = open(path, O_PATH | O_DIRECTORY);
  return say_contents(openat(at, second, O_RDONLY));
}

static int try_null(void) {
  const char* volatile null = NULL;
  if (stat(null, &status) != -1 || errno != EFAULT) return say(0);
  if (open(null, O_RDONLY) != -1 || errno != EFAULT) return say(0);
  if (access(null, R_OK) != -1 || errno != EFAULT) return say(0);
  return say(1);
}

static int try_keeps_errno(void) {
  errno = EXDEV;
  const int result = stat(path, &status) == 0 && access(path, F_OK) == 0 && open(path, O_RDONLY) >= 0;
  return say(result && errno == EXDEV);
}

// Later changes of the environment have no effect on the preload.
static int try_without_environment(void) {
  clearenv();
  return try_stat();
}

#define ENTRY(name) \
  { #name, try_##name }
static const struct {
  const char* name;
  int (*call)(void);
} functions[] = {
    ENTRY(stat),
    ENTRY(lstat),
    ENTRY(fstatat),
    ENTRY(fstatat_nofollow),
    ENTRY(stat64),
    ENTRY(lstat64),
    ENTRY(fstatat64),
    ENTRY(xstat),
    ENTRY(xstat64),
    ENTRY(lxstat),
    ENTRY(lxstat64),
    ENTRY(fxstatat),
    ENTRY(fxstatat64),
    ENTRY(statx),
    ENTRY(access),
    ENTRY(access_write),
    ENTRY(eaccess),
    ENTRY(euidaccess),
    ENTRY(faccessat),
    ENTRY(statfs),
    ENTRY(statfs64),
    ENTRY(statvfs),
    ENTRY(statvfs64),
    ENTRY(listxattr),
    ENTRY(llistxattr),
    ENTRY(getxattr),
    ENTRY(lgetxattr),
    ENTRY(inotify_add_watch),
    ENTRY(open),
    ENTRY(open64),
    ENTRY(openat),
    ENTRY(openat64),
    ENTRY(open_checked),
    ENTRY(open64_checked),
    ENTRY(openat_checked),
    ENTRY(openat64_checked),
    ENTRY(fopen),
    ENTRY(fopen64),
    ENTRY(freopen),
    ENTRY(freopen64),
    ENTRY(creat),
    ENTRY(creat64),
    ENTRY(create),
    ENTRY(readlink),
    ENTRY(readlinkat),
    ENTRY(readlink_checked),
    ENTRY(realpath),
    ENTRY(realpath_into),
    ENTRY(realpath_checked),
    ENTRY(canonicalize),
    ENTRY(opendir),
    ENTRY(fdopendir),
    ENTRY(rewinddir),
    ENTRY(readdir_r),
    ENTRY(many),
    ENTRY(scandir),
    ENTRY(scandir64),
    ENTRY(scandirat),
    ENTRY(glob),
    ENTRY(in),
    ENTRY(at),
    ENTRY(open_at),
    ENTRY(null),
    ENTRY(keeps_errno),
    ENTRY(without_environment),
};

int main(int count, char** arguments) {
  if (count < 3) return 2;
  path = arguments[2];
  second = count > 3 ? arguments[3] : "";
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
    if (strcmp(functions[i].name, arguments[1]) == 0) return functions[i].call();
  }
  return 2;
}
