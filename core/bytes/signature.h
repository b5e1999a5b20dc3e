// What ranks must agree on before the data of a collective moves: a small fixed-size description of one call.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/bytes/reduce_op.h"

namespace dtorch {

enum class Operation : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv,
};
std::string_view to_string(Operation operation);

/** One rank's view of a call, as it travels between ranks (same architecture assumed, as for tensors). */
struct CallSignature {
  static constexpr std::int8_t kNoReduce = -1;

  std::uint64_t sequence = 0;
  std::int64_t count = 0;      ///< elements of this rank's part
  std::uint64_t detail = 0;    ///< hash of whatever else must be equal: sizes of coalesced tensors
  std::int64_t to_peer = 0;    ///< all_to_all: elements this rank will send to the receiver of this signature
  std::int64_t from_peer = 0;  ///< all_to_all: elements this rank expects of it
  std::int32_t root = -1;
  Operation operation = Operation::barrier;
  std::int8_t reduce = kNoReduce;  ///< a ReduceOp
  std::int8_t dtype = -1;          ///< a DataType; -1: no tensor
  std::int8_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<CallSignature> && sizeof(CallSignature) == 48);

/** "all_reduce sum float32[65537]", "broadcast from 2 uint8[7]", "barrier". Safe on bytes a peer sent. */
std::string describe(const CallSignature& signature);

/** Whether two ranks' calls fit together; all_to_all's counts are compared pairwise. */
bool agree(const CallSignature& mine, const CallSignature& theirs);

/** The text of the error when they do not: names both calls on both ranks. */
std::string disagreement(int my_rank, const CallSignature& mine, int their_rank, const CallSignature& theirs);

}  // namespace dtorch
