// How a rank's main ends: whatever it throws is told to whoever started it.
#pragma once
#include <functional>

#include "core/engine/rank_control.h"

namespace dtorch::engine {

/** libtorch's own log lines ("[W1201 ... socket.cpp]") are not for our users; what matters comes as an Error. Call it first:
 * it sets a variable of the environment. */
void quiet_libtorch();

/**
 * Runs a rank. Its failure goes to the launcher, or to stderr without one, and to torchrun's error file. `rank` tells the
 * rank's number, -1 as long as it is unknown. With `json` it is an event "error" on stdout too. Returns an exit status as Engine describes it.
 */
int run_reporting(RankControl& control, const std::function<void()>& run, const std::function<int()>& rank,
                  bool json = false);

}  // namespace dtorch::engine
