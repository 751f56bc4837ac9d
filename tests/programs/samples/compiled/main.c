#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "twice.h"

void greet(const char* who);

static void* in_a_thread(void* number) {
  *(int*)number = twice(*(int*)number);
  return NULL;
}

int main(void) {
  int number = (int)sqrt(441.0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, in_a_thread, &number) != 0) return 1;
  pthread_join(thread, NULL);
  greet("world");
  printf("%d\n", number);
  return 0;
}
