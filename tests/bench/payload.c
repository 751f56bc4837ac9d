// What every contender of the benchmark runs: a static program that ends at once, so that the time
// of a launch is the launcher's and not the program's.

int main(void) { return 0; }
