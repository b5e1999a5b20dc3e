// One collective of one size, ready to be called again and again.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/comm/process_group.h"

namespace dtorch::bench {

struct WorkloadSettings {
  std::string operation;   ///< of bench_operations()
  std::string type;        ///< "float32"
  std::string reduction;   ///< "sum"
  std::int64_t bytes = 0;  ///< as nccl-tests counts: the larger of what goes in and what comes out on a rank
  int root = 0;
  bool in_place = false;
  bool backend_memory = false;  ///< buffers from ProcessGroup::allocate where the backend has such memory
};

/**
 * Holds the buffers. Several sets of them take turns, so that small ones are not always in the nearest cache, and each is
 * rewritten before it is used, as a training step does.
 */
class Workload {
 public:
  virtual ~Workload() = default;
  /** Elements that take part, after rounding down to a multiple of the ranks where the operation splits them. */
  virtual std::int64_t elements() const = 0;
  /** The same in bytes. */
  virtual std::int64_t bytes() const = 0;
  /** Whether the buffers are the backend's memory. */
  virtual bool in_backend_memory() const = 0;
  /** Writes the input of the next call, and something else into its output. Not timed. */
  virtual void rewrite() = 0;
  /** The collective, to its end. Throws what ProcessGroup throws. */
  virtual void call() = 0;
  /** Elements of this rank's result of the last call that are not what they should be. */
  virtual std::int64_t wrong() const = 0;
};

/** What there is to know of an operation before it is run. */
struct OperationTraits {
  bool reduces;
  bool has_root;
  bool in_place;  ///< its input can be (part of) its output
};
/** Throws Error(usage) for a name that is not of bench_operations(). */
OperationTraits traits_of(const std::string& operation);

/**
 * Null when the size leaves nothing to move between these ranks. Throws Error(usage) for an unknown operation or type, or a
 * reduction that the type does not have.
 */
std::unique_ptr<Workload> make_workload(ProcessGroup& group, const WorkloadSettings& settings);

}  // namespace dtorch::bench
