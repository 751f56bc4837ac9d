/* Lists what a program can write and reach from where it runs, one finding a line, sorted. It is
 * run in the sandbox of a real program, and its list is compared with a golden one, so that a
 * policy that opens more than it says does not go unnoticed.
 *
 * usage: reach [QUESTION]...
 *   read:PATH       can this file of the host be read?
 *   unix:PATH       does this listening socket of the host answer? ("@NAME": an abstract one)
 *   tcp4:PORT       does the host's listener on 127.0.0.1 answer?
 *   tcp6:PORT       the same on ::1
 *   pid:NUMBER      is this process of the host there?
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char kProbe[] = "belljar-reach-probe";

static char** findings;
static size_t count, room;

static void __attribute__((format(printf, 1, 2))) found(const char* format, ...) {
  if (count == room)
    findings = realloc(findings, (room = room ? room * 2 : 256) * sizeof *findings);
  va_list arguments;
  va_start(arguments, format);
  if (findings == NULL || vasprintf(&findings[count++], format, arguments) < 0) abort();
  va_end(arguments);
}

static const char* outcome(int result, const char* good) {
  return result >= 0 ? good : strerrorname_np(errno);
}

/* ---- files ---- */

/* What is made there stays in memory, or lands on a file system of the host. */
static const char* kind_of_file_system(int fd) {
  struct statfs about;
  if (fstatfs(fd, &about) != 0) return "unknown";
  return about.f_type == TMPFS_MAGIC ? "tmpfs" : "disk";
}

static int can_create(int directory) {
  int fd = openat(directory, kProbe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  close(fd);
  unlinkat(directory, kProbe, 0);
  return 1;
}

static int connect_unix(const char* path) {
  static const int kTypes[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
  strcpy(address.sun_path, path);
  socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] != '@');
  if (path[0] == '@') address.sun_path[0] = '\0';
  int result = -1;
  for (size_t i = 0; i < sizeof kTypes / sizeof *kTypes; ++i) {
    int fd = socket(AF_UNIX, kTypes[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    result = connect(fd, (struct sockaddr*)&address, length);
    int error = errno;
    close(fd);
    errno = error;
    if (result == 0 || errno != EPROTOTYPE) break;
  }
  return result;
}

static void look_at_device(int directory, const char* name, const char* path) {
  int fd = openat(directory, name, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return;
  close(fd);
  found("open the device %s", path);
}

static void look_at_file(int directory, const char* name, const char* path, unsigned char type) {
  if (type == DT_SOCK && connect_unix(path) == 0) found("connect to the socket %s", path);
  if (type == DT_LNK || type == DT_SOCK) return;
  if (faccessat(directory, name, W_OK, AT_EACCESS) != 0) return;
  if (type == DT_CHR || type == DT_BLK) return look_at_device(directory, name, path);
  found("write to the %s %s", type == DT_FIFO ? "pipe" : "file", path);
}

static int is_skipped(const char* path) {
  static const char* const kViews[] = {"/proc", "/sys"};
  for (size_t i = 0; i < sizeof kViews / sizeof *kViews; ++i)
    if (strcmp(path, kViews[i]) == 0) return 1;
  return 0;
}

/* A device that is mounted on a file is a file to the directory: only what cannot be written is
 * taken at its word, which saves a call for nearly every file. */
static unsigned char type_of(int directory, const struct dirent* entry) {
  struct stat about;
  if (entry->d_type == DT_DIR || entry->d_type == DT_LNK) return entry->d_type;
  if (entry->d_type == DT_REG && faccessat(directory, entry->d_name, W_OK, AT_EACCESS) != 0)
    return DT_REG;
  if (fstatat(directory, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) return DT_UNKNOWN;
  return IFTODT(about.st_mode);
}

/* Closes `directory`. `listed` is the device of the nearest directory above that was found
 * writable: what lies in it on the same file system says nothing new. 0 for none. */
static void walk(int directory, const char* path, dev_t listed) {
  struct stat about = {0};
  DIR* entries = fstat(directory, &about) == 0 ? fdopendir(directory) : NULL;
  if (listed != about.st_dev && can_create(directory)) {
    found("create files in %s (%s)", *path ? path : "/", kind_of_file_system(directory));
    listed = about.st_dev;
  } else if (listed != about.st_dev) {
    listed = 0;
  }
  if (entries == NULL) {
    close(directory);
    return;
  }
  for (struct dirent* entry; (entry = readdir(entries)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char below[PATH_MAX];
    snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    unsigned char type = type_of(directory, entry);
    if (type == DT_DIR && !is_skipped(below)) {
      int child = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      /* One that cannot be listed may still take files. */
      if (child < 0) child = openat(directory, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
      if (child >= 0) walk(child, below, listed);
    } else if (type != DT_DIR && (listed == 0 || type != DT_REG)) {
      look_at_file(directory, entry->d_name, below, type);
    }
  }
  closedir(entries);
}

static void look_at_tree(const char* path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  walk(fd, path[1] == '\0' ? "" : path, 0);
}

/* Only names that every Debian has, so that the list is the same on all of them. */
static void look_at_top_level(void) {
  static const char* const kNames[] = {"bin",   "boot", "dev", "etc",  "home", "lib",
                                       "media", "mnt",  "opt", "proc", "root", "run",
                                       "sbin",  "srv",  "sys", "tmp",  "usr",  "var"};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    char path[16];
    struct stat about;
    snprintf(path, sizeof path, "/%s", kNames[i]);
    if (lstat(path, &about) == 0) found("see %s", path);
  }
}

/* ---- processes, credentials ---- */

static void look_at_processes(void) {
  DIR* proc = opendir("/proc");
  if (proc == NULL) return;
  int others = 0;
  for (struct dirent* entry; (entry = readdir(proc)) != NULL;)
    others += entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && atoi(entry->d_name) != getpid();
  closedir(proc);
  found("processes beside this one: %d", others);
}

static void look_at_credentials(void) {
  FILE* status = fopen("/proc/self/status", "re");
  char line[1024], set[16];
  unsigned long long bits;
  int value;
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "Cap%3s: %llx", set, &bits) == 2 && bits != 0)
      found("capabilities (%.3s): %llx", set, bits);
    if (sscanf(line, "NoNewPrivs: %d", &value) == 1) found("no_new_privs: %d", value);
    if (sscanf(line, "Seccomp: %d", &value) == 1) found("seccomp mode: %d", value);
  }
  if (status != NULL) fclose(status);
  for (int fd = 0; fd < 1024; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) found("descriptor %d", fd);
  for (char** entry = environ; *entry != NULL; ++entry)
    found("environment %.*s", (int)strcspn(*entry, "="), *entry);
}

/* ---- network ---- */

static int connect_to(int family, const char* address, int port, int type) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  inet_pton(family, address, family == AF_INET ? (void*)&four.sin_addr : (void*)&six.sin6_addr);
  int fd = socket(family, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int result = family == AF_INET ? connect(fd, (struct sockaddr*)&four, sizeof four)
                                 : connect(fd, (struct sockaddr*)&six, sizeof six);
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

static void look_at_network(void) {
  static const struct {
    int number;
    const char* name;
  } kFamilies[] = {{AF_UNIX, "unix"},       {AF_INET, "inet"},     {AF_INET6, "inet6"},
                   {AF_NETLINK, "netlink"}, {AF_PACKET, "packet"}, {AF_VSOCK, "vsock"},
                   {AF_ALG, "alg"}};
  for (size_t i = 0; i < sizeof kFamilies / sizeof *kFamilies; ++i) {
    int fd = socket(kFamilies[i].number, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) found("sockets of the family %s", kFamilies[i].name), close(fd);
  }
  int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
  if (raw >= 0) found("raw sockets"), close(raw);
  /* A connected datagram socket sends nothing; it only asks for a route (TEST-NET-1). */
  if (connect_to(AF_INET, "192.0.2.1", 9, SOCK_DGRAM) == 0) found("a route out");
}

static void answer(const char* question) {
  const char* value = strchr(question, ':');
  if (value == NULL) exit(2);
  ++value;
  if (strncmp(question, "read:", 5) == 0) {
    int fd = open(value, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char byte;
    ssize_t got = fd < 0 ? -1 : read(fd, &byte, 1);
    if (got == 1) found("read %s", value);
    if (fd >= 0) close(fd);
  } else if (strncmp(question, "unix:", 5) == 0) {
    found("the host's socket %s: %s", value[0] == '@' ? "@abstract" : value,
          outcome(connect_unix(value), "connects"));
  } else if (strncmp(question, "tcp4:", 5) == 0) {
    found("the host's 127.0.0.1: %s",
          outcome(connect_to(AF_INET, "127.0.0.1", atoi(value), SOCK_STREAM), "connects"));
  } else if (strncmp(question, "tcp6:", 5) == 0) {
    found("the host's ::1: %s",
          outcome(connect_to(AF_INET6, "::1", atoi(value), SOCK_STREAM), "connects"));
  } else if (strncmp(question, "pid:", 4) == 0) {
    found("a process of the host: %s", outcome(kill(atoi(value), 0), "there"));
  } else {
    exit(2);
  }
}

static int by_text(const void* left, const void* right) {
  return strcmp(*(char* const*)left, *(char* const*)right);
}

int main(int argc, char** argv) {
  if (geteuid() == 0) {
    fputs("reach: opens every device that it can, and so does not run as root\n", stderr);
    return 2;
  }
  look_at_credentials();
  look_at_top_level();
  look_at_tree("/");
  look_at_tree("/proc/sys");
  look_at_processes();
  look_at_network();
  for (int i = 1; i < argc; ++i) answer(argv[i]);
  qsort(findings, count, sizeof *findings, by_text);
  for (size_t i = 0; i < count; ++i) puts(findings[i]);
  return 0;
}
