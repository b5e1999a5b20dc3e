// What a thread is doing, for the dump of a stalled rank.
#pragma once
#include <pthread.h>

#include <string>
#include <vector>

namespace dtorch::engine {

/** Makes stack_of possible (a signal handler, the unwinder loaded). Call once, before threads that may be
 * asked. */
void prepare_stacks();

/**
 * The thread's call stack, innermost first, as "function+0x12 (library)". Interrupts it with a signal for a
 * moment; waits at most a second for its answer and gives an empty list if there is none. One caller at a
 * time.
 */
std::vector<std::string> stack_of(pthread_t thread);

}  // namespace dtorch::engine
