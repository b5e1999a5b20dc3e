// Collectives on plain memory: what a transport of our own (shm, tcp) offers. It sees no tensor, so that
// ThreadSanitizer and fuzzers can run it.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/bytes/data_type.h"
#include "core/bytes/reduce_op.h"
#include "core/bytes/signature.h"

namespace dtorch {

/** One call: what all ranks must agree on, and until when it may take. */
struct ByteCall {
  /** Compared with every peer that data is exchanged with, unless `agreed`: what differs is
   * PeerError(disagree, disagreement(...)), before anything of the peer's is used. */
  CallSignature signature;
  Deadline deadline;
  bool agreed = false;  ///< shapes have been compared before; a check that costs a message may be left out
};

/**
 * One rank's end of a group. Every operation blocks, makes progress on the calling thread, and returns when
 * this rank's part is complete: memory given to it may be reused. Collectives come from one thread at a time,
 * in the same order on every rank; send and recv may run beside them and beside each other, one at a time for
 * each (peer, direction, tag). abort() and missing() come from any thread at any time.
 *
 * Pointers may be null when nothing is to be moved, need no alignment beyond their type's, and may be memory
 * of allocate(). Reductions are made in rank order, from rank 0 on, so that results are equal on all ranks and
 * from run to run; 16-bit floats are summed in float32 and rounded once; avg divides the sum by the world size.
 *
 * Throws PeerError: timeout at the deadline with the ranks that did not come, lost with the ranks whose process
 * or connection is gone, disagree. After any failure the group is unusable: every later call fails too.
 */
class ByteCollectives {
 public:
  virtual ~ByteCollectives() = default;

  /** In place. */
  virtual void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op,
                          const ByteCall& call) = 0;
  /** In place on root; other ranks' data is left as it is. */
  virtual void reduce(void* data, std::size_t count, DataType type, ReduceOp op, int root,
                      const ByteCall& call) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root, const ByteCall& call) = 0;
  /** out: world × bytes, rank after rank. in may be this rank's part of out. */
  virtual void all_gather(void* out, const void* in, std::size_t bytes, const ByteCall& call) = 0;
  /** out as in all_gather on root, null elsewhere. */
  virtual void gather(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) = 0;
  /** in: world × bytes on root, null elsewhere. */
  virtual void scatter(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) = 0;
  /** in: world × count elements, out: the reduction of everyone's part `rank`. out may be that part of in. */
  virtual void reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op,
                              const ByteCall& call) = 0;
  /** Bytes from / for each rank, in rank order, laid out one after the other. The signature's to_peer and from_peer
   * are set by the engine for each pair: these counts in elements of the signature's dtype. */
  virtual void all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                          std::span<const std::size_t> in_bytes, const ByteCall& call) = 0;
  virtual void barrier(const ByteCall& call) = 0;
  virtual void send(const void* data, std::size_t bytes, int destination, int tag, const ByteCall& call) = 0;
  virtual void recv(void* data, std::size_t bytes, int source, int tag, const ByteCall& call) = 0;

  /** Ranks that the collective under way has not heard of yet. */
  virtual std::vector<int> missing() const = 0;
  /** Wakes whoever waits in a call, which throws PeerError(lost, reason), as does every later one. Idempotent. Peers
   * notice, as they would this process's end. */
  virtual void abort(const std::string& reason) = 0;
  /** Memory, zeroed and page-aligned, that collectives move with fewer copies; null when there is none better. Called
   * in the same order with the same size on every rank; may outlive the group. Blocks until `deadline`. */
  virtual std::shared_ptr<void> allocate(std::size_t bytes, Deadline deadline) = 0;
  /** Memory that is the same on all ranks, zeroed and page-aligned: what one writes, others may read after the
   * next collective. Null where ranks have none in common. Otherwise as allocate(). */
  virtual std::shared_ptr<void> allocate_common(std::size_t bytes, Deadline deadline) = 0;
};

}  // namespace dtorch
