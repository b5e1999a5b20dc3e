// Times collectives and checks what they gave. Follows nccl-tests in what a size means.
#pragma once
#include <functional>

#include "core/base/bench_messages.h"
#include "core/comm/process_group.h"

namespace dtorch::bench {

/** Speed of memcpy in bytes per nanosecond (GB/s), 32 MiB, all ranks at the same time: the slowest rank's best of five. Collective. */
double measure_memcpy(ProcessGroup& group);

/**
 * One operation and size, in and out of place. Collective; every rank gets the whole row. What the operation or the backend refuses
 * (Error(usage)) becomes the row's note; other errors are thrown. With `step` called after every call, a caller can tell how far it is.
 */
BenchRow measure(ProcessGroup& group, const BenchRequest& request, const std::string& operation,
                 std::int64_t bytes, const std::function<void()>& step);

}  // namespace dtorch::bench
