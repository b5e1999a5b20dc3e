// Numbers on the command line: what the parser would take too easily.
#pragma once
#include <CLI/CLI.hpp>
#include <chrono>

namespace dtorch::cli {

/** A finite number of seconds within these bounds, in decimal digits: "2", "0.5", "1e3". */
CLI::Validator seconds_between(double least, double most);

/** Rounded up, so that no wait that was asked for becomes none. */
std::chrono::milliseconds to_milliseconds(double seconds);

}  // namespace dtorch::cli
