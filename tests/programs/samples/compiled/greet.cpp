#include <cstdio>

extern "C" void greet(const char* who) { std::printf("hello, %s\n", who); }
