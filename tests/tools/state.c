// Prints, on one line, what confines this process: ids, groups, capabilities, no_new_privs,
// filters, umask, limits, mounts with their flags, open descriptors. Two launches of one policy
// print the same line, or one of them is missing something.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void print_status(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[4096];
  const char* const wanted[] = {
      "Umask:", "Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Seccomp:", "Cap", "NSpid:"};
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i)
      if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
        printf("%.*s|", (int)strcspn(line, "\n"), line);
  if (file != NULL) fclose(file);
}

static void print_mounts(void) {
  FILE* file = fopen("/proc/self/mountinfo", "r");
  char line[4096], point[2048], options[512];
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "%*d %*d %*s %*s %2047s %511s", point, options) == 2)
      printf("%s %s|", point, options);
  if (file != NULL) fclose(file);
}

static void print_descriptors(void) {
  for (int fd = 0; fd < 1024; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) printf("%d|", fd);
}

int main(void) {
  printf("state|");
  print_descriptors();
  print_status();
  print_mounts();
  struct rlimit limit;
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource)
    if (getrlimit((__rlimit_resource_t)resource, &limit) == 0)
      printf("%ld %ld|", (long)limit.rlim_cur, (long)limit.rlim_max);
  char here[4096];
  printf("%s %d %d\n", getcwd(here, sizeof here), getpgid(0), getsid(0));
  return 0;
}
