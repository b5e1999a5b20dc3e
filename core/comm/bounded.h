// Keeps a deadline on calls of other people's code that have none.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "core/base/deadline.h"

namespace dtorch {

/**
 * Runs `call` on a thread of its own and waits for it; rethrows what it throws. At the deadline throws
 * Error(timeout, message, help) and leaves the thread to itself: what `call` refers to must outlive it
 * (capture by value).
 */
void run_bounded(std::function<void()> call, Deadline deadline, const std::string& message,
                 const std::string& help = {});

/** The same without a deadline, for a call that has one: ends when `check`, which is called every 20 ms meanwhile, throws. */
void run_watched(std::function<void()> call, const std::function<void()>& check);

/**
 * run_bounded() for a call whose success nobody needs (a note in a store that may be stopped): what it throws is logged for
 * debugging and dropped, as is a call that has not ended by the limit.
 */
void try_bounded(std::function<void()> call, std::chrono::milliseconds limit);

}  // namespace dtorch
