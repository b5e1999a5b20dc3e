// Ending what a job started, wherever it went: process groups, and processes that left them but carry the job's tag.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/deadline.h"

namespace dtorch {

/** Name of the environment variable that every rank, and so all its descendants, inherit. Its value is unique to the job. */
inline constexpr char kJobTag[] = "DTORCH_JOB";

/** A value for kJobTag, unique on a network. Inside another job: that job's tag, '/', and a new one. */
std::string make_job_tag();

/** This user's processes that carry the tag in the environment they were started with; never this process. */
std::vector<pid_t> tagged_processes(const std::string& tag);

/** Kills (SIGKILL) the groups and every tagged process, again and again until none is left or the deadline passes. */
void kill_job(const std::set<pid_t>& groups, const std::string& tag, Deadline deadline);

/** The order that ends watchdog and helper; the watchdog ends after it. */
inline constexpr char kDismissal[] = "end";

/** What the watchdog needs to know; see run_watchdog. */
struct WatchdogRequest {
  int launcher_pidfd = -1;  ///< readable when the launcher has died
  int orders_fd =
      -1;  ///< from the launcher: lines "+PGID", "-PGID", kDismissal; end of file means that it died
  std::string tag;
  std::string scratch;  ///< a folder to remove then, if it is there
  int helper_pidfd =
      -1;  ///< the process that the watchdog guards beside the ranks (libtorch's half of the agent)
  pid_t helper = -1;
};

/**
 * Sleeps until the launcher dies, then kills its ranks and their descendants, and the helper if it does not end by itself soon;
 * or until the helper ends. Returns when nothing is left to do. Uses nothing but this process's own thread, so that it works whatever happens to the helper.
 */
void run_watchdog(const WatchdogRequest& request);

}  // namespace dtorch
